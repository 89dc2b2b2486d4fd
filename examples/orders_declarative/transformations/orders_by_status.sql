-- Counts of the changes, computed again with each update.
CREATE MATERIALIZED VIEW orders_by_status AS
SELECT status, count(*) AS changes, sum(cents) AS cents FROM orders GROUP BY status;

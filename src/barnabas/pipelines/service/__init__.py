"""Pipeline service: store, supervisor, driver processes and Connect's REST interface, without Spark."""

"""Every setting of a broker, a topic and a group: its row, where its value comes from, what is in force.

`rows` are the keys; `layers` is the search for a value; `changes` says what a request means before anything
is written; `log_config` and `broker_config` are the values as components read them.
"""

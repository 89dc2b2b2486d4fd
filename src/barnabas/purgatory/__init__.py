"""Delayed operations that wait for an event or a timeout, and the timing wheel behind them."""

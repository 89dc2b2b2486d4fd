"""Who may do what on which resource: rules, and the authorizer that goes by them. No I/O."""

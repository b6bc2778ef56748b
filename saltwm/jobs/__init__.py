"""Jobs: what a user can ask for, one declaration each."""

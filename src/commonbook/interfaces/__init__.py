"""What people and programs talk to: each door translates in and out, and decides nothing."""

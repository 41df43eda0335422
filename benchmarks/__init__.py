"""What Commonbook costs: each figure beside a bare reference of the same run, through the public API alone."""

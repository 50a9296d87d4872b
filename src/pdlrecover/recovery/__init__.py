"""Recovery: requests, schedule, guard, curvature, and one file per method."""

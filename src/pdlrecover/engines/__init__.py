"""What carries a method out: who computes, who talks to whom, and what it costs."""

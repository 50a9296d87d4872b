"""Results as documents, figures and one page of HTML."""

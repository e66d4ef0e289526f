"""Views: one module per page; each checks who asks and renders panels."""

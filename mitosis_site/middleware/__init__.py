"""What every HTTP request passes on its way in and out; the order is in settings.base."""

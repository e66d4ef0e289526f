"""HTTP of workers. For users: registration, listing, attributes, departure (DRF, in threads).

For workers: duty, reports, resources (plain asynchronous views on the dispatcher).
"""

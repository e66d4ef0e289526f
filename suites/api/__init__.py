"""HTTP views of suites: thin, calling the services of suites, managers and tasks."""

-- Which client certificate a direct worker was registered with. By workers_pkey; called by workers.services.certificates
-- at every connect and request, where the installation wants certificates.
SELECT w.certificate FROM workers w WHERE w.runner_id = %(runner_id)s

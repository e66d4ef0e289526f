"""A coordinator behind TLS that wants client certificates of direct workers, and who issues them.

nginx runs with the example of docker/ and the lines for certificates switched on.
"""

import datetime
import ssl
from ipaddress import IPv4Address
from pathlib import Path

import httpx2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typing_extensions import override

from mitosis_stack.ports import LOOPBACK, pick_free
from mitosis_stack.process import wait_until
from tests.debian_setup import find_program
from tests.e2e.cluster import Cluster
from tests.e2e.proxied_cluster import nginx_arguments

HEADER = "X-Client-Certificate"


class Authority:
    """Issues certificates into one directory: `<name>.pem`, `<name>.key`, its own as `ca.pem`."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self._place = place
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"authority {place.name}")
        self.ca = place / "ca.pem"
        self.ca.write_bytes(_pem(self._sign(self._name, self._key, is_ca=True)))

    def issue(self, name: str) -> "Issued":
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_named(name), key, is_ca=False)
        issued = Issued(self._place / f"{name}.pem", self._place / f"{name}.key", certificate)
        issued.cert.write_bytes(_pem(certificate))
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return issued

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(LOOPBACK))])
        constraints = x509.BasicConstraints(ca=is_ca, path_length=None)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(constraints, critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )


class Issued:
    """A certificate, its key, and what nginx calls it."""

    def __init__(self, cert: Path, key: Path, certificate: x509.Certificate) -> None:
        self.cert = cert
        self.key = key
        self.fingerprint = certificate.fingerprint(hashes.SHA1()).hex()  # nginx names them so

    @property
    def flags(self) -> tuple[str, ...]:
        return "--tls-cert", str(self.cert), "--tls-key", str(self.key)


class TlsCluster(Cluster):
    """`tls_url` is nginx; `url` stays the coordinator itself, for the test."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        [self._nginx] = pick_free(["nginx"], {}).values()
        self.authority = Authority(root / "authority")
        super().__init__(root, environment={**environment, "MITOSIS_MTLS_HEADER": HEADER})

    @property
    def tls_url(self) -> str:
        return f"https://{LOOPBACK}:{self._nginx}"

    def context(self, shown: Issued | None = None) -> ssl.SSLContext:
        """As a client that trusts the authority and shows this certificate."""
        context = ssl.create_default_context(cafile=self.authority.ca)
        if shown is not None:
            context.load_cert_chain(shown.cert, shown.key)
        return context

    @override
    def __enter__(self) -> "TlsCluster":
        super().__enter__()
        self._start_nginx()
        return self

    def _start_nginx(self) -> None:
        site = self.authority.issue("site")
        here = f"server {LOOPBACK}:{self._ports[0]}"
        changes = {
            "server coordinator-1:5000": here,
            "server coordinator-2:5000": here,
            "listen 443 ssl;": f"listen {LOOPBACK}:{self._nginx} ssl;",
            "/etc/nginx/tls/fullchain.pem": str(site.cert),
            "/etc/nginx/tls/privkey.pem": str(site.key),
            "#ssl_client_certificate /etc/nginx/tls/workers-ca.pem": (
                f"ssl_client_certificate {self.authority.ca}"
            ),
            "#ssl_verify_client": "ssl_verify_client",
        }
        program = find_program("nginx")
        assert program is not None
        child = self.start_program("nginx", program, *nginx_arguments(self.root / "nginx", changes))
        wait_until(self._is_served, child=child, timeout_s=30)

    def _is_served(self) -> bool:
        try:
            return httpx2.get(f"{self.tls_url}/readyz", verify=self.context()).status_code == 200
        except httpx2.TransportError:
            return False


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

"""Certificates made for a test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(directory: Path) -> tuple[str, str]:
    """Self-made, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "quvatlh test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, key_file = directory / "cert.pem", directory / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return str(cert), str(key_file)


@dataclass
class Authority:
    """A certificate authority of the test, writing what it issues into files."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.ca = str(self.folder / f"{self.name}-ca.pem")
        certificate = self._certificate(self.name, self.key, ca=True)
        Path(self.ca).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        cert_path, key_path = self.folder / f"{self.name}-{name}.pem", self.folder / f"{self.name}-{name}.key"
        certificate = self._certificate(name, key, ca=False)
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        return str(cert_path), str(key_path)

    def _certificate(self, name: str, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

"""A client that speaks JSON as one user, and the password of every test user."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.test import Client

PASSWORD = "correct horse battery"
JSON = "application/json"


def digest(password: str = PASSWORD) -> list[int]:
    """The password as existing clients send it."""
    return list(hashlib.md5(password.encode()).digest())


@dataclass
class Api:
    """Requests with JSON bodies and one user's token."""

    client: Client
    token: str | None = None

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        if self.token is not None:
            headers.setdefault("authorization", f"Bearer {self.token}")
        data = b"" if body is None else json.dumps(body).encode()
        content_type = "" if body is None else JSON
        return self.client.generic(method, path, data, content_type, headers=headers)

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any) -> HttpResponse:
        return self.call("POST", path, body)

    def put(self, path: str, body: Any) -> HttpResponse:
        return self.call("PUT", path, body)

    def delete(self, path: str) -> HttpResponse:
        return self.call("DELETE", path)

    def login(self, username: str, password: str = PASSWORD, **extra: Any) -> HttpResponse:
        body = {"username": username, "md5_password": digest(password), **extra}
        return Api(self.client).post("/login", body)

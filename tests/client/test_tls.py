"""A key goes to a server over TLS only if its certificate can be trusted."""

from __future__ import annotations

import pytest

from commonbook.errors import Unreachable
from tests.interfaces.http.serving.test_serve import certificate
from tests.support.servers import serving


@pytest.mark.slow
def test_a_certificate_that_nobody_trusts_is_refused_and_a_trusted_one_is_not(home, tmp_path, connect, monkeypatch):
    cert, key = certificate(tmp_path)
    with serving(home, "--tls-cert", cert, "--tls-key", key) as server:
        with pytest.raises(Unreachable, match="certificate"):
            connect(server.url, server.key, patience_seconds=15).status()
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        assert connect(server.url, server.key).actor == "user:local"

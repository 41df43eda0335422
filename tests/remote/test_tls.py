"""A key goes to a server over TLS only if its certificate can be trusted."""

from __future__ import annotations

import time

import pytest

from commonbook.errors import UntrustedServer
from tests.interfaces.http.serving.test_serve import certificate
from tests.support.servers import serving

pytestmark = pytest.mark.promise("client.saved-key")


@pytest.mark.slow
def test_a_certificate_that_nobody_trusts_is_refused_and_a_trusted_one_is_not(home, tmp_path, connect, monkeypatch):
    cert, key = certificate(tmp_path)
    with serving(home, "--tls-cert", cert, "--tls-key", key) as server:
        begun = time.monotonic()
        here = connect(server.url, server.key, patience_seconds=300)
        with pytest.raises(UntrustedServer, match="certificate"):
            here.status()
        assert here.append("talk", ["kept"]).searchable is False
        assert [message.entry.text for message in here.outbox.pending()] == ["kept"]
        assert time.monotonic() - begun < 100
        here.close()
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        trusting = connect(server.url, server.key)
        assert trusting.actor == "user:local"
        assert trusting.outbox.flush(60)
        assert [message.text for message in trusting.messages("talk").items] == ["kept"]

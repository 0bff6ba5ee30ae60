package main_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// selfSigned writes a certificate for 127.0.0.1 that signs itself.
func selfSigned(tb testing.TB, certFile, keyFile string, serial int64) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestTheHubSpeaksTLSWithACertificateThatMayChange(t *testing.T) {
	t.Parallel()
	cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	selfSigned(t, cert, key, 1)
	h := startHub(t, "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(h.base, "https://") {
		t.Fatalf("the banner says %s", h.base)
	}
	host := strings.TrimPrefix(h.base, "https://")
	pool := x509.NewCertPool()
	read, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(read) {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	t.Cleanup(client.CloseIdleConnections)

	// Ingest and SSE over HTTP/2, a WebSocket over HTTP/1.1.
	resp, err := client.Post(h.base+"/v1/runs/r1/events", "application/x-ndjson", strings.NewReader(events("r1")))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Errorf("ingest: %s over %s", resp.Status, resp.Proto)
	}
	resp, err = client.Get(h.base + "/v1/runs/r1/sse")
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.ProtoMajor != 2 || !strings.Contains(body.String(), "RUN_FINISHED") {
		t.Errorf("SSE over %s: %v\n%s", resp.Proto, err, body.String())
	}
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(plain.CloseIdleConnections)
	ws, _, err := websocket.Dial(t.Context(), "wss://"+host+"/v1/runs/r1/ws", &websocket.DialOptions{HTTPClient: plain})
	if err != nil {
		t.Fatal(err)
	}
	if _, first, err := ws.Read(t.Context()); err != nil || !strings.Contains(string(first), "RUN_STARTED") {
		t.Errorf("WebSocket: %v %s", err, first)
	}
	_ = ws.CloseNow()

	if conn, err := tls.Dial("tcp", host, &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	serial := func() int64 {
		conn, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if err := os.WriteFile(key, []byte("half written"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hub has seen the broken key", func() bool {
		return serial() == 1 && strings.Contains(h.stderr.all(), "the certificate before holds")
	})
	selfSigned(t, cert, key, 2)
	eventually(t, "the new certificate is shown", func() bool { return serial() == 2 })

	if code, _, stderr := run(t, "", "--tls-cert", cert); code != 2 || !strings.Contains(stderr, "both or neither") {
		t.Errorf("a certificate without its key: exit code %d: %s", code, stderr)
	}
	if code, _, stderr := run(t, "", "--listen=127.0.0.1:0", "--tls-cert", key, "--tls-key", key); code != 2 || !strings.Contains(stderr, "--tls-cert") {
		t.Errorf("a key for a certificate: exit code %d: %s", code, stderr)
	}
}

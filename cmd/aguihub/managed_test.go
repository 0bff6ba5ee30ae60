package main_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// hubUser is the ACL of a managed server's user: its own keys, and no command that administers.
var hubUser = []string{"--user", "hub", "on", ">first", "~agui:*", "~{agui:*", "&agui:*", "+@all", "-@admin", "-@dangerous", "+info"}

// certificate makes a self-signed certificate for 127.0.0.1 and returns its files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := process.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// serves has a hub do all that Redis is needed for, and says how it learns of entries without wake-ups.
func serves(t *testing.T, client redis.Cmdable, h *hub, without string) {
	t.Helper()
	h.stderr.waitLine(t, `"without_wake_ups": "`+without+`"`)
	all := strings.Split(strings.TrimSpace(events("plain")), "\n")
	a := h.attach("plain")
	for i, e := range all {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "agui:run:plain", Values: []string{"event", e}}).Err(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			a.stdout.waitLine(t, "RUN_STARTED") // the rest comes live
		}
	}
	if code := a.exit(); code != 0 || !strings.Contains(a.stdout.all(), "RUN_FINISHED") {
		t.Errorf("attach: exit code %d: %s", code, a.stdout.all())
	}
	if code, _, stderr := run(t, events("posted"), "publish", "posted", "--url", h.base); code != 0 {
		t.Errorf("publish: exit code %d: %s", code, stderr)
	}
	eventually(t, "the run that nobody announced is listed", func() bool {
		_, body, err := get(t.Context(), h.base+"/v1/runs")
		return err == nil && strings.Contains(body, `"plain"`) && strings.Contains(body, `"posted"`)
	})
	eventually(t, "the run expires after its end", func() bool { return client.TTL(t.Context(), "agui:run:plain").Val() > 0 })
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, h.base+"/v1/runs/posted", http.NoBody)
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode/100 != 2 {
		t.Errorf("delete: %v %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	if _, body, _ := get(t.Context(), h.metrics+"/metrics"); regexp.MustCompile(`(?m)^aguihub_redis_errors_total\{.*kind="(denied|other|unavailable)".*\} [1-9]`).MatchString(body) {
		t.Errorf("calls failed: %s", regexp.MustCompile(`(?m)^aguihub_redis_errors_total.*$`).FindAllString(body, -1))
	}
}

// unknown makes sure that the server is without CONFIG: else it would show nothing.
func unknown(t *testing.T, admin *redis.Client) {
	t.Helper()
	if err := admin.ConfigGet(t.Context(), "*").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Fatalf("CONFIG: %v", err)
	}
}

// TestManagedRedis is the matrix of docs/operations.md: what a hub needs of a server, each kind simulated by the settings
// and the ACL of a real one. Most are without keyspace events, which a hub doesn't ask for.
func TestManagedRedis(t *testing.T) {
	t.Parallel()
	t.Run("a server of one's own", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t)
		serves(t, server.Client(t), startHub(t, "--redis", server.URL()), "xread")
	})
	t.Run("Memorystore: TLS with its CA, one password, no CONFIG and no ACL, keyspace events on", func(t *testing.T) {
		t.Parallel()
		cert, key := certificate(t)
		port := freePort(t)
		server := streamtest.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
			"--tls-auth-clients", "no", "--rename-command", "CONFIG", "", "--notify-keyspace-events", "KEA", "--user", "keeper", "on", ">keeper", "~*", "&*", "+@all")
		admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "keeper", Password: "keeper"})
		t.Cleanup(func() { _ = admin.Close() })
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">the password", "-acl", "-shutdown", "-debug", "-bgsave", "-replicaof").Err(); err != nil {
			t.Fatal(err)
		}
		unknown(t, admin)
		h := startHub(t, "--redis", "rediss://:the%20password@127.0.0.1:"+port, "--redis-ca", cert)
		serves(t, admin, h, "xread")
	})
	t.Run("Azure: TLS, a user by its id whose token comes from a file, no CONFIG, no keyspace events", func(t *testing.T) {
		t.Parallel()
		cert, key := certificate(t)
		const id = "1f0f3f9c-0000-4000-8000-7d1c2b3a4f5e"
		port, secret := freePort(t), write(t, id+"\nfirst\n")
		user := append([]string{"--user", id}, hubUser[2:]...)
		server := streamtest.StartRedis(t, append([]string{
			"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
			"--tls-auth-clients", "no", "--rename-command", "CONFIG", "", "--notify-keyspace-events", "",
		}, user...)...)
		admin := server.Client(t)
		unknown(t, admin)
		h := startHub(t, "--redis", "rediss://127.0.0.1:"+port, "--redis-ca", cert, "--redis-credentials-file", secret)
		serves(t, admin, h, "xread")
	})
	t.Run("ElastiCache: TLS with a CA and a client's certificate, no CONFIG, a user whose password rotates", func(t *testing.T) {
		t.Parallel()
		cert, key := certificate(t)
		port, secret := freePort(t), filepath.Join(t.TempDir(), "secret")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("hub\nfirst\n")
		server := streamtest.StartRedis(t, append([]string{
			"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "yes",
		}, hubUser...)...)
		admin := server.Client(t)
		h := startHub(t, "--redis", "rediss://127.0.0.1:"+port+"?conn_max_lifetime=1s", "--redis-ca", cert, "--redis-cert", cert, "--redis-key", key, "--redis-credentials-file", secret)
		serves(t, admin, h, "xread")

		// The next token: connections of the old one end in time, those that block included.
		if err := admin.Do(t.Context(), "acl", "setuser", "hub", ">second").Err(); err != nil {
			t.Fatal(err)
		}
		write("hub\nsecond\n")
		old := connections(t.Context(), admin, "")
		eventually(t, "no connection is left of those with the old token", func() bool {
			return connections(t.Context(), admin, old) == ""
		})
		if err := admin.Do(t.Context(), "acl", "setuser", "hub", "<first").Err(); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := run(t, events("after"), "publish", "after", "--url", h.base); code != 0 {
			t.Errorf("publish: exit code %d: %s", code, stderr)
		}
		if n := h.series(`aguihub_redis_errors_total{client="commands",kind="denied"}`); n != 0 {
			t.Errorf("%g calls were denied", n)
		}
		write("")
		h.stderr.waitLine(t, "--redis-credentials-file can't be read")
	})
	t.Run("a cluster, which is all that some offer", func(t *testing.T) {
		t.Parallel()
		server := streamtest.StartRedis(t, append([]string{"--cluster-enabled", "yes"}, hubUser...)...)
		admin := server.Client(t)
		if err := admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the cluster serves", func() bool { return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok") })
		serves(t, admin, startHub(t, "--redis", "redis+cluster://hub:first@"+server.Addr()), "sweep")
	})
	t.Run("what can't work is refused with what is wrong, and never with the password", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			says string
			args []string
		}{
			{"of use with rediss URLs only", []string{"--redis", "redis://:hunter2@127.0.0.1:1", "--redis-ca", "/dev/null"}},
			{"has no certificate", []string{"--redis", "rediss://:hunter2@127.0.0.1:1", "--redis-ca", "/dev/null"}},
			{"no such file", []string{"--redis", "redis://:hunter2@127.0.0.1:1", "--redis-credentials-file", "/nowhere"}},
			{"must hold a password", []string{"--redis", "redis://127.0.0.1:1", "--redis-credentials-file", "/dev/null"}},
			{"both or neither", []string{"--redis", "rediss://127.0.0.1:1", "--redis-key", "/dev/null"}},
			{"of use with --redis only", []string{"--redis-credentials-file", "/dev/null"}},
		} {
			code, _, stderr := run(t, "", append([]string{"--listen=127.0.0.1:0", "--metrics-listen=off"}, c.args...)...)
			if code != 2 || !strings.Contains(stderr, c.says) || strings.Contains(stderr, "hunter2") {
				t.Errorf("%s: exit code %d: %s", c.args, code, stderr)
			}
		}
	})
}

// connections lists the ids of the hub's connections that are in use, since idle ones may lie in a pool for ever, each with a space behind it; where among isn't empty only those in it.
func connections(ctx context.Context, client *redis.Client, among string) string {
	var ids strings.Builder
	for line := range strings.SplitSeq(client.ClientList(ctx).Val(), "\n") {
		m := regexp.MustCompile(`^id=(\d+) .* idle=[012] .* user=hub `).FindStringSubmatch(line)
		if len(m) > 1 && (among == "" || strings.Contains(" "+among, " "+m[1]+" ")) {
			ids.WriteString(m[1] + " ")
		}
	}
	return ids.String()
}

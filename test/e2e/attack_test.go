package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// attacks are attempts of users and outsiders against the working cluster.
func attacks() map[string]func(*site) {
	return map[string]func(*site){
		"refused system calls": refusedCalls, "refused words and sizes": refusedWords, "user namespace": userNamespace,
		"foreign transports": foreignTransports, "forged proofs": forgedProofs, "hostile requests": hostileRequests,
		"slow connections": slowConnections,
	}
}

// refusedWords checks that text that would harm a terminal, a file or a plan is refused, and that
// messages and lists hold no control character.
func refusedWords(s *site) {
	script := s.script("true")
	for _, args := range [][]string{
		{"--name=a\x1b[2Jb"}, {"--name=a\nb"}, {"--name=a\u202eb"}, {"--comment=\x07"}, {"--nodelist=\x1b]0;x\x07"},
		{"--account=a\x1b[31m"}, {"--constraint=\x1b[1m"}, {"--partition=$(id)"},
		{"--nodes=-1"}, {"--nodes=99999999999999999999"}, {"--gpus=-1"}, {"--gpus=9223372036854775807"}, {"--mem=-1"}, {"--mem=99999999999T"},
		{"--cpus-per-task=0"}, {"--ntasks=2147483648"}, {"--time=-5"}, {"--array=0-99999999999"}, {"--array=5-1"}, {"--array=-1"},
		{"--nodelist=n[1-99999999]"}, {"--dependency=afterok:-1"}, {"--dependency=afterok:18446744073709551615"}, {"--nice=-100"},
	} {
		result := s.run(alice, "gsubmit", append(append(small("--hold"), args...), script)...)
		if result.Exit <= 0 {
			s.t.Errorf("gsubmit %q: exit status %d, %s", args, result.Exit, result.Stdout)
		}
		if strings.ContainsAny(result.Stdout+result.Stderr, "\x1b\x07\u202e") {
			s.t.Errorf("gsubmit %q writes to the terminal %q", args, result.Stderr)
		}
	}
	if list := s.ok(alice, "gqueue"); strings.ContainsAny(list, "\x1b\x07\u202e") {
		s.t.Errorf("the queue holds %q", list)
	}
}

// userNamespace checks that root of a user namespace is the user who created it.
func userNamespace(s *site) {
	needsRoot(s.t, "a second user")
	path, err := exec.LookPath("unshare")
	if err != nil {
		s.t.Skip("needs unshare")
	}
	cmd := s.Command(s.t.Context(), "gsubmit", small("--hold", s.script("true"))...)
	cmd.Args = append([]string{path, "--user", "--map-root-user", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = path
	result := s.finish(cluster.As(cmd, uint32(alice), uint32(alice)))
	if strings.Contains(result.Stderr, "unshare:") {
		s.t.Skipf("needs user namespaces of users: %s", result.Stderr)
	}
	id := strings.TrimSpace(result.Stdout)
	if seen := s.ok(alice, "gctl", "show", "job", id, "--json"); result.Exit != 0 || !strings.Contains(seen, `"user": "daemon"`) {
		s.t.Errorf("root of a user namespace submitted %s: %s%s", id, seen, result.Stderr)
	}
	s.ok(alice, "gcancel", id)
}

// foreignTransports checks that only TLS 1.3 is spoken, and only with this cluster's certificates.
func foreignTransports(s *site) {
	addr := s.Controller(0).Addr
	conn, err := net.Dial("tcp", addr)
	s.must(err)
	defer conn.Close()
	s.must(conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	s.must(err)
	if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "200 OK") || strings.Contains(string(answer), "greylag") {
		s.t.Errorf("plain HTTP is answered %.100q", answer)
	}
	for version := uint16(tls.VersionTLS10); version <= tls.VersionTLS12; version++ {
		if conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}); err == nil {
			s.t.Errorf("%s is spoken", tls.VersionName(version))
			_ = conn.Close()
		}
	}
}

// outsider is a client that trusts the cluster and proves nothing.
func (s *site) outsider() (*http.Client, *tls.Config) {
	s.t.Helper()
	pem, err := os.ReadFile(filepath.Join(s.Dir, "ca.pem"))
	s.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	// The names in certificates are the cluster's own; the chain is what counts here.
	config := &tls.Config{InsecureSkipVerify: true, RootCAs: roots, MinVersion: tls.VersionTLS13}
	transport := &http.Transport{TLSClientConfig: config}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}, config
}

// post calls a method with a body and headers and returns the status, 0 for a cut connection.
func (s *site) post(client *http.Client, method string, body io.Reader, header map[string]string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "https://"+s.Controller(0).Addr+"/greylag.v1."+method, body)
	s.must(err)
	request.Header.Set("Content-Type", "application/json")
	for key, value := range header {
		request.Header.Set(key, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// forgedProofs checks that no header makes a caller another user.
func forgedProofs(s *site) {
	client, _ := s.outsider()
	for _, header := range []map[string]string{
		{}, {"X-Forwarded-User": "root"}, {"Greylag-Forwarded": "controller/c1"}, {"Greylag-User": "root"}, {"Forwarded": "for=127.0.0.1;user=root"},
		{"Authorization": "Bearer "}, {"Authorization": "Bearer x.y.z"}, {"Authorization": "bearer " + strings.Repeat("A", 2000)},
		{"Authorization": "Basic cm9vdDpyb290"}, {"Cookie": "user=root"},
	} {
		for _, method := range []string{"JobService/ListJobs", "JobService/CancelJobs", "ClusterService/CreateToken", "ClusterService/RemoveMember", "PeerService/GetBlobs", "NodeService/RegisterNode"} {
			if got := s.post(client, method, strings.NewReader("{}"), header); got != 401 && got != 403 {
				s.t.Errorf("%s with %v: status %d", method, header, got)
			}
		}
	}
}

// hostileRequests checks that these are refused, and another client is served meanwhile.
func hostileRequests(s *site) {
	client, _ := s.outsider()
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	_, err := io.CopyN(packed, zeros{}, 64<<20)
	s.must(err)
	s.must(packed.Close())
	headers := map[string]string{}
	for i := range 20_000 {
		headers[fmt.Sprint("X-Flood-", i)] = strings.Repeat("x", 100)
	}
	for what, send := range map[string]func() int{
		"a gzip bomb": func() int {
			return s.post(client, "ClusterService/Join", bytes.NewReader(bomb.Bytes()), map[string]string{"Content-Encoding": "gzip"})
		},
		"deep JSON": func() int {
			return s.post(client, "ClusterService/Join", strings.NewReader(strings.Repeat(`{"token":[`, 5_000)), nil)
		},
		"2 MB of headers": func() int { return s.post(client, "ClusterService/Join", strings.NewReader("{}"), headers) },
	} {
		got := send() // 0: the connection was cut
		if s.t.Logf("%s: status %d", what, got); got != 0 && (got < 400 || got >= 500) && got != 501 {
			s.t.Errorf("%s: status %d", what, got)
		}
		s.ok(alice, "gqueue")
	}
}

// zeros is a file without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// slowConnections checks that connections that send a head without its end keep no other client
// waiting, and are closed.
func slowConnections(s *site) {
	_, config := s.outsider()
	count := 50
	if everyFault() {
		count = 1500
	}
	config.NextProtos = []string{"http/1.1"}
	open := make([]*tls.Conn, count)
	for i := range open {
		conn, err := tls.Dial("tcp", s.Controller(0).Addr, config)
		s.must(err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /greylag.v1.ClusterService/Join HTTP/1.1\r\nHost: x\r\n")
		s.must(err)
		open[i] = conn
	}
	s.ok(alice, "gqueue")
	if !everyFault() {
		return
	}
	for _, conn := range open {
		s.must(conn.SetReadDeadline(time.Now().Add(hang)))
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			s.t.Fatalf("a connection stays open: %v", err)
		}
	}
}

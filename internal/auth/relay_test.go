package auth

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// echo replaces the controllers: it answers with the token and the request.
type echo struct{}

func (echo) Forward(w http.ResponseWriter, r *http.Request, token string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.Header().Set("Test-Token", token)
	_, _ = w.Write(body)
}

// through is an HTTP client of the daemon.
func through(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

func TestRelaySaysWhoCalls(t *testing.T) {
	ca := testCA(t)
	path := filepath.Join(t.TempDir(), "auth.sock")
	startDaemon(t, testSigner(t, ca, "login1"), path)
	client := through(path)
	first := ""
	for _, text := range []string{"one", strings.Repeat("x", 100_000), ""} {
		response, err := client.Post("http://gauthd/greylag.v1.JobService/SubmitJobs", "application/proto", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if string(got) != text || response.Header.Get(RelayHeader) != "" {
			t.Errorf("%d bytes came back as %d, %s", len(text), len(got), response.Status)
		}
		token := response.Header.Get("Test-Token")
		id, err := NewVerifier(ca.Trust(), nil).Verify(token, time.Now())
		if err != nil || id.UID != uint32(os.Getuid()) || id.GID != uint32(os.Getgid()) || id.Host != "login1" {
			t.Errorf("%+v, %v", id, err)
		}
		if first == "" {
			first = token
		}
		if token != first {
			t.Error("signed again within half the life of a token")
		}
	}
	client.CloseIdleConnections()
	if _, err := FetchToken(t.Context(), path); err != nil {
		t.Errorf("a token after calls: %v", err)
	}
}

func TestRelayRefuses(t *testing.T) {
	ca := testCA(t)
	path := filepath.Join(t.TempDir(), "auth.sock")
	startDaemon(t, testSigner(t, ca, "login1"), path)
	for name, request := range map[string]string{
		"another path":       "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"a token of its own": "POST /greylag.v1.JobService/SubmitJobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer abc\r\nContent-Length: 0\r\n\r\n",
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if response.Header.Get(RelayHeader) == "" || response.Header.Get("Test-Token") != "" {
			t.Errorf("%s: %s %v", name, response.Status, response.Header)
		}
		conn.Close()
	}
	// Any other method is a bad request for a token.
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /greylag.v1.JobService/SubmitJobs HTTP/1.1\r\n\r\n")
	if answer, _ := io.ReadAll(conn); !strings.HasPrefix(string(answer), "error "+codeBadRequest) {
		t.Errorf("GET: %q", answer)
	}
}

// TestRelayOutlivesTheSlow checks that connections that begin a call and never end it are closed,
// lock no other user out, and do not keep the daemon from stopping.
func TestRelayOutlivesTheSlow(t *testing.T) {
	ca := testCA(t)
	path := filepath.Join(t.TempDir(), "auth.sock")
	stop := startDaemon(t, testSigner(t, ca, "login1"), path)
	var slow []net.Conn
	for i := range maxUserConns - 1 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text := "POST /greylag.v1.JobService/SubmitJobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nslow"
		_, _ = io.WriteString(conn, text[:len(text)-i%60])
		slow = append(slow, conn)
	}
	response, err := through(path).Post("http://gauthd/greylag.v1.JobService/SubmitJobs", "application/proto", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	begun := time.Now()
	stop()
	if took := time.Since(begun); took >= callTime {
		t.Errorf("stopping took %s", took)
	}
	for _, conn := range slow {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("a slow connection outlives the daemon: %v", err)
		}
	}
}

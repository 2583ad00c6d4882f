package server_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/limits"
)

// inUse returns the memory that this process uses, after a garbage collection.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// dial opens a connection for HTTP/1.1 without a certificate.
func (w *world) dial() *tls.Conn {
	config := pki.ClientTLS(w.ca.Trust(), nil)
	config.NextProtos = []string{"http/1.1"}
	var conn *tls.Conn
	w.until("a connection", func() (ok bool) {
		var err error
		conn, err = tls.Dial("tcp", w.all[0].addr, config)
		return err == nil
	})
	return conn
}

// sendJoin sends the headers of a call of Join and size bytes of its body, or as many as the server
// accepts, and does not end the body.
func sendJoin(conn *tls.Conn, length string, size int) {
	part := make([]byte, 30_000)
	_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second)) // the writes show it
	_, err := io.WriteString(conn, "POST /greylag.v1.ClusterService/Join HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n"+length+"\r\n\r\n")
	for sent := 0; sent < size && err == nil; sent += len(part) {
		text := string(part)
		if strings.Contains(length, "chunked") {
			text = fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
		}
		_, err = io.WriteString(conn, text)
	}
}

// serial marks a test that must run alone.
type serial struct{ testing.TB }

// TestUnfinishedBodiesWithoutProof: 300 connections send 1 MiB each to Join, and never end. They
// use little memory, and other callers are not delayed.
func TestUnfinishedBodiesWithoutProof(t *testing.T) {
	const connections, size = 300, 1 << 20
	w := newWorld(serial{t}, options{})
	other := w.as(root)
	status := func() error {
		_, err := other.Cluster().GetStatus(t.Context(), &greylagv1.GetStatusRequest{})
		return err
	}
	for kind, length := range map[string]string{"with length": fmt.Sprint("Content-Length: ", 2*size), "chunked": "Transfer-Encoding: chunked"} {
		must(t, status())
		before := inUse()
		open := make([]*tls.Conn, connections)
		for i := range open {
			open[i] = w.dial()
		}
		var senders sync.WaitGroup
		for _, conn := range open {
			senders.Go(func() { sendJoin(conn, length, size) })
		}
		var took []time.Duration
		for range 20 {
			begun := time.Now()
			must(t, status())
			took = append(took, time.Since(begun))
		}
		senders.Wait()
		grown := int64(inUse()) - int64(before)
		for _, c := range open {
			_ = c.Close()
		}
		slices.Sort(took)
		t.Logf("%s: memory grew by %d KiB; other calls took %s (median), %s", kind, grown>>10, took[10], took[19])
		if grown > 64<<20 {
			t.Errorf("%s: memory grew by %d bytes", kind, grown)
		}
		if took[10] > 100*time.Millisecond {
			t.Errorf("%s: half of another client's calls took more than %s", kind, took[10])
		}
	}
}

// TestHeldBodiesWithoutProof checks that bodies small enough to be read are bounded in number, and
// that a refused caller learns when to retry. Users are not refused.
func TestHeldBodiesWithoutProof(t *testing.T) {
	w := newWorld(t, options{limits: limits.Config{ReadTimeout: time.Minute}})
	hold := func() {
		conn := w.dial()
		t.Cleanup(func() { _ = conn.Close() })
		sendJoin(conn, "Content-Length: 65536", 60_000)
	}
	for range 15 { // 1 MiB in all, with their headers
		hold()
	}
	var response *http.Response
	w.until("a refusal", func() bool {
		hold() // the server may have answered one of the others, for example without a leader
		var err error
		response, err = w.browser().Post("https://"+w.all[0].addr+"/greylag.v1.ClusterService/Join", "application/proto", bytes.NewReader(make([]byte, 65536)))
		must(t, err)
		response.Body.Close()
		return response.StatusCode == http.StatusTooManyRequests
	})
	if after := response.Header.Get("Retry-After"); after != "1" || response.Header.Get("Greylag-Hint") == "" {
		t.Errorf("retry after %q, hint %q", after, response.Header.Get("Greylag-Hint"))
	}
	w.submit(w.as(ann), job("not refused"))
	if _, err := w.program(pki.RoleNode, "n1").Node().Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "b", Cpus: 1}); err != nil {
		t.Errorf("a node: %v", err)
	}
}

// TestTooLargeBodiesAreAnswered checks that the caller gets an explanation in every protocol.
func TestTooLargeBodiesAreAnswered(t *testing.T) {
	w := newWorld(t, options{})
	http2 := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.ClientTLS(w.ca.Trust(), nil), ForceAttemptHTTP2: true}, Timeout: time.Minute}
	for name, c := range map[string]*http.Client{"HTTP/1.1": w.browser(), "HTTP/2": http2} {
		for what, body := range map[string]io.Reader{
			"with length": bytes.NewReader(make([]byte, 20<<20)), "without": io.LimitReader(endless{}, 20<<20),
		} {
			response, text := w.post(c, ann, "JobService/SubmitJobs", "application/proto", body)
			if response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "larger than 16777216 bytes") {
				t.Errorf("%s %s: %s %.200s", name, what, response.Status, text)
			}
		}
	}
	conn := w.dial()
	defer conn.Close()
	sendJoin(conn, "Content-Length: 65537", 0)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err) // before any of the body was sent
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("64 KiB and more without proof: %s", response.Status)
	}
	response.Body.Close()
}

// TestACompressedRequestIsRefused checks the explanation in every protocol.
func TestACompressedRequestIsRefused(t *testing.T) {
	w := newWorld(t, options{})
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.ClientTLS(w.ca.Trust(), nil), ForceAttemptHTTP2: true}}
	defer c.CloseIdleConnections()
	for kind, name := range map[string]string{"application/json": "Content-Encoding", "application/proto": "Content-Encoding", "application/connect+json": "Connect-Content-Encoding"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.all[0].addr+"/greylag.v1.ClusterService/Join", strings.NewReader("{}"))
		must(t, err)
		r.Header.Set("Content-Type", kind)
		r.Header.Set(name, "gzip")
		response, err := c.Do(r)
		must(t, err)
		text, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if !strings.Contains(string(text), "compressed requests are not supported") {
			t.Errorf("%s: %s, %s", kind, response.Status, text)
		}
	}
}

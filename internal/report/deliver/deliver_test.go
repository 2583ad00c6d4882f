package deliver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/report"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func clock() time.Time { return time.Date(2026, 6, 13, 1, 10, 0, 0, time.UTC) }

func alert(id string) report.Alert {
	return report.Alert{ID: id, Rule: "spend.anomaly", Scope: "physics", Period: "2026-06-12", Value: "143.250000", Limit: "100.000000", Text: "physics: 143.250000 credits on ünïday"}
}

// TestWebhook checks that requests are signed, repeated until they are accepted, not repeated after
// a refusal, and sent once.
func TestWebhook(t *testing.T) {
	key := []byte("0123456789abcdef")
	answers := map[string][]int{"a": {503, 429, 204}, "b": {400}, "c": {302}, "d": {200}}
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id := r.Header.Get(KeyHeader)
		if r.Header.Get(SignatureHeader) != Sign(key, r.Header.Get(TimestampHeader), body) || r.Header.Get(TimestampHeader) != fmt.Sprint(clock().Unix()) {
			t.Errorf("%s is not signed", id)
		}
		status := answers[id][0]
		answers[id] = answers[id][1:]
		got = append(got, fmt.Sprint(id, status))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer server.Close()
	channels := []Channel{&Webhook{URL: server.URL, Key: key, Clock: clock}}
	path := filepath.Join(t.TempDir(), "alerts", "sent")
	record, err := OpenSentAlerts(path)
	must(t, err)
	sent, err := All(t.Context(), record, channels, []report.Alert{alert("a"), alert("b"), alert("c"), alert("d")}, time.Millisecond)
	if want := "[a503 a429 a204 b400 c302 d200]"; sent != 2 || !errors.Is(err, ErrDelivery) || fmt.Sprint(got) != want {
		t.Errorf("sent %d, %v: %v, want %s", sent, err, got, want)
	}
	must(t, record.Close())
	record, err = OpenSentAlerts(path)
	must(t, err)
	defer record.Close()
	if sent, err := All(t.Context(), record, channels, []report.Alert{alert("a"), alert("d")}, time.Millisecond); sent != 0 || err != nil || len(got) != 6 {
		t.Errorf("a rerun sent %d, %v", sent, err)
	}
}

// TestSentAlerts checks that a partial line, as a power failure leaves it, is sent again, and nothing
// else.
func TestSentAlerts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sent")
	must(t, os.WriteFile(path, []byte("x a\nx b"), 0o644))
	record, err := OpenSentAlerts(path)
	must(t, err)
	if !record.Has("x", "a") || record.Has("x", "b") || record.Has("y", "a") {
		t.Error("the list is read wrongly")
	}
	must(t, record.Add("x", "c\nd"))
	must(t, record.Close())
	record, err = OpenSentAlerts(path)
	must(t, err)
	defer record.Close()
	if !record.Has("x", "a") || !record.Has("x", "c\nd") {
		t.Error("the list is lost")
	}
}

// relay starts a mail server for one mail and returns it.
func relay(t *testing.T) (addr string, got <-chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	out := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		fmt.Fprint(conn, "220 here\r\n")
		var all strings.Builder
		for data := false; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			all.WriteString(line)
			switch {
			case data && line == ".\r\n":
				data = false
				fmt.Fprint(conn, "250 taken\r\n")
				out <- all.String()
			case data:
			case line == "DATA\r\n":
				data = true
				fmt.Fprint(conn, "354 go on\r\n")
			default:
				fmt.Fprint(conn, "250 yes\r\n")
			}
		}
	}()
	return l.Addr().String(), out
}

func TestMailThroughARelay(t *testing.T) {
	addr, got := relay(t)
	m := &Mail{Cluster: "north", From: "Greylag <greylag@example.org>", To: []string{"hpc@example.org", "Bob <bob@example.org>"}, Relay: addr, Clock: clock}
	must(t, m.Check())
	must(t, m.Send(t.Context(), alert("x\r\nBcc: evil@example.org")))
	text := <-got
	for _, want := range []string{"MAIL FROM:<greylag@example.org>", "RCPT TO:<hpc@example.org>", "RCPT TO:<bob@example.org>", "Auto-Submitted: auto-generated"} {
		if !strings.Contains(text, want) {
			t.Errorf("the mail holds no %q:\n%s", want, text)
		}
	}
	_, body, _ := strings.Cut(text, "DATA\r\n")
	parsed, err := mail.ReadMessage(strings.NewReader(body))
	must(t, err)
	if parsed.Header.Get("Bcc") != "" || !strings.HasSuffix(parsed.Header.Get("Message-Id"), "@example.org>") {
		t.Errorf("headers %v", parsed.Header)
	}
	if bad := (&Mail{From: "a@b", To: []string{"unknown"}}).Check(); bad == nil {
		t.Error("an address without a host passes")
	}
}

func TestMailThroughSendmail(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "sendmail")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\" > "+dir+"/args\ncat > "+dir+"/mail\n"), 0o755))
	m := &Mail{Cluster: "north", From: "greylag@example.org", To: []string{"hpc@example.org"}, Sendmail: program, Clock: clock}
	must(t, m.Send(context.Background(), alert("x")))
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "mail"))
	must(t, err)
	if string(args) != "-i -f greylag@example.org -- hpc@example.org\n" || !strings.Contains(string(text), "Subject: =?utf-8?q?") || strings.Contains(string(text), "\r") {
		t.Errorf("sendmail got %q and\n%s", args, text)
	}
	m.Sendmail = filepath.Join(dir, "none")
	if err := m.Send(context.Background(), alert("x")); err == nil {
		t.Error("a missing sendmail sent mail")
	}
}

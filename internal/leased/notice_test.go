package leased

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// service is the metadata service of EC2, version 2.
type service struct {
	*httptest.Server
	tokens            atomic.Int64 // issued; only the last one is valid
	expire            atomic.Bool  // the next request with a token is refused
	action, rebalance atomic.Value // "": 404
	hangs             atomic.Bool
}

func newService(t *testing.T) *service {
	s := &service{}
	s.action.Store("")
	s.rebalance.Store("")
	page := func(content *atomic.Value) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			valid := fmt.Sprint("token-", s.tokens.Load())
			switch {
			case s.hangs.Load():
				<-r.Context().Done()
			case r.Header.Get("X-aws-ec2-metadata-token") != valid || s.expire.Swap(false):
				w.WriteHeader(http.StatusUnauthorized)
			case content.Load() == "":
				http.NotFound(w, r)
			default:
				fmt.Fprint(w, content.Load())
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, "token-", s.tokens.Add(1))
	})
	mux.HandleFunc("GET /latest/meta-data/spot/instance-action", page(&s.action))
	mux.HandleFunc("GET /latest/meta-data/events/recommendations/rebalance", page(&s.rebalance))
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, name, url string) Source {
	t.Helper()
	source, err := Open(name, url)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestNoticesOfEC2(t *testing.T) {
	s := newService(t)
	source := open(t, "aws", s.URL+"/")
	deadline := time.Date(2026, 11, 27, 12, 2, 0, 0, time.UTC)
	for _, c := range []struct {
		action, rebalance string
		want              Notice
		problem           string
	}{
		{"", "", Notice{}, ""},
		{"", `{"noticeTime": "2026-11-27T11:50:00Z"}`, Notice{Rebalance: true}, ""},
		{`{"action": "terminate", "time": "2026-11-27T12:02:00Z"}`, `{"noticeTime": "2026-11-27T11:50:00Z"}`, Notice{Reclaim: deadline}, ""},
		{`{"action": "stop", "time": "2026-11-27T12:02:00Z"}`, "", Notice{Reclaim: deadline}, ""},
		{`{"action": "hibernate", "time": "2026-11-27T12:02:00Z"}`, "", Notice{}, ""},
		{`{"action": "dance", "time": "2026-11-27T12:02:00Z"}`, "", Notice{}, `unknown action "dance"`},
		{`{"action": "stop"}`, "", Notice{}, "no time"},
		{`{"action": "stop", "time": "soon"}`, "", Notice{}, "soon"},
		{`<html>`, "", Notice{}, "<html>"},
	} {
		s.action.Store(c.action)
		s.rebalance.Store(c.rebalance)
		got, err := source(t.Context())
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%q, %q: %+v, %v", c.action, c.rebalance, got, err)
		}
	}
	if n := s.tokens.Load(); n != 1 {
		t.Errorf("%d tokens", n)
	}
	s.action.Store("")
	s.expire.Store(true)
	if _, err := source(t.Context()); err != nil || s.tokens.Load() != 2 {
		t.Errorf("after the token expired: %v, %d tokens", err, s.tokens.Load())
	}
	s.hangs.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := source(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an answer: %v", err)
	}
}

func TestNoticesOfFilesAndPrograms(t *testing.T) {
	dir := t.TempDir()
	path, program := filepath.Join(dir, "notice"), filepath.Join(dir, "program")
	file, exec := open(t, "file:"+path, ""), open(t, "exec:"+program, "")
	if got, err := file(t.Context()); err != nil || got != (Notice{}) {
		t.Errorf("no file: %+v, %v", got, err)
	}
	deadline := time.Date(2026, 11, 27, 12, 2, 0, 0, time.UTC)
	for _, c := range []struct {
		text    string
		want    Notice
		problem string
	}{
		{"", Notice{}, ""},
		{"\n", Notice{}, ""},
		{"rebalance\n", Notice{Rebalance: true}, ""},
		{"2026-11-27T12:02:00Z\n", Notice{Reclaim: deadline}, ""},
		{"tomorrow\n", Notice{}, `"tomorrow" is neither an RFC 3339 time nor "rebalance"`},
	} {
		script := "#!/bin/sh\nprintf '" + strings.ReplaceAll(c.text, "\n", `\n`) + "'\n"
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.WriteFile(program, []byte(script), 0o700)); err != nil {
			t.Fatal(err)
		}
		for what, source := range map[string]Source{"file": file, "exec": exec} {
			got, err := source(t.Context())
			if !got.Reclaim.Equal(c.want.Reclaim) || got.Rebalance != c.want.Rebalance || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s %q: %+v, %v", what, c.text, got, err)
			}
		}
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no such command >&2\nexit 4\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := exec(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 4 no such command") {
		t.Errorf("a program that fails: %v", err)
	}
	for _, bad := range []string{"gcp", "file:", "exec", "aws:x"} {
		if _, err := Open(bad, ""); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	if source, err := Open("", ""); source != nil || err != nil {
		t.Errorf("no source: %v", err)
	}
}

func TestWatchNoticesLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var log bytes.Buffer
		var received []time.Duration
		release := make(chan struct{})
		source := func(context.Context) (Notice, error) {
			switch since := time.Since(began); {
			case since < 5*time.Second, since > 75*time.Second:
				return Notice{}, nil
			case since < 30*time.Second:
				return Notice{}, errors.New("garbage")
			}
			<-release // a file system that does not respond
			return Notice{Rebalance: true}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		go func() {
			time.Sleep(time.Minute)
			close(release)
		}()
		WatchNotices(ctx, source, slog.New(slog.NewTextHandler(&log, nil)), func(Notice) { received = append(received, time.Since(began)) })
		if text := log.String(); strings.Count(text, "cannot read") != 2 || !strings.Contains(text, "garbage") || !strings.Contains(text, "no answer within 4s") {
			t.Errorf("logged:\n%s", text)
		}
		if len(received) < 4 || received[0] != 0 || received[1] != time.Minute {
			t.Errorf("received at %v", received)
		}
	})
}

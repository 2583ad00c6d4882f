package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

// login is a login node with its gauthd, and controllers with given answers.
type login struct {
	hosts  []*host
	config config.Client
}

// newLogin starts them. far are the controllers that gauthd knows of; nil is all.
func newLogin(t *testing.T, far []string, say ...func(n int) error) *login {
	t.Helper()
	ca, err := pki.NewCA("test", time.Now())
	must(t, err)
	l := &login{}
	for i, f := range say {
		l.hosts = append(l.hosts, serveHost(t, ca, fmt.Sprint("c", i), f))
		l.config.Controllers = append(l.config.Controllers, l.hosts[i].addr)
	}
	if far == nil {
		far = l.config.Controllers
	}
	dir := t.TempDir()
	must(t, ca.Issue(dir, pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: pki.RoleAuth, Name: "login1"}}, time.Now()))
	id, trust, err := pki.OpenIdentity(dir)
	must(t, err)
	signer, err := auth.NewSigner(id)
	must(t, err)
	l.config.AuthSocket, l.config.CAFile, l.config.Timeout = filepath.Join(dir, "s"), filepath.Join(dir, "ca.pem"), time.Minute
	listener, err := auth.Listen(l.config.AuthSocket)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	calls := client.NewForwarder(client.Seeds(far...), pki.ClientTLS(trust, nil))
	go func() {
		done <- auth.NewDaemon(signer, auth.NewNames(), calls, slog.New(slog.DiscardHandler)).Serve(ctx, listener)
	}()
	t.Cleanup(func() {
		stop()
		must(t, <-done)
	})
	return l
}

// serveHost serves one controller, which wants a token with each call.
func serveHost(t *testing.T, ca *pki.CA, name string, say func(int) error) *host {
	t.Helper()
	dir := t.TempDir()
	must(t, ca.Issue(dir, pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: pki.RoleController, Name: name}}, time.Now()))
	id, trust, err := pki.OpenIdentity(dir)
	must(t, err)
	h, mux := &host{say: say}, http.NewServeMux()
	mux.Handle(greylagv1connect.NewJobServiceHandler(h))
	s := &http.Server{TLSConfig: pki.ServerTLS(trust, id), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			t.Errorf("%s came without a token", r.URL.Path)
		}
		mux.ServeHTTP(w, r)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	h.addr = l.Addr().String()
	go func() { _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { s.Close() })
	return h
}

// TestThroughGauthd: without the cluster's CA nothing but gauthd can be the way.
func TestThroughGauthd(t *testing.T) {
	down := coded(connect.CodeUnavailable)
	for name, say := range map[string][]func(int) error{
		"one":                {yes},
		"the other":          {until(1000, down), yes},
		"none at first":      {until(4, down), until(4, down)},
		"the second time":    {until(2, down)},
		"refused for good":   {until(1000, coded(connect.CodeInvalidArgument))},
		"a limit, then done": {until(2, coded(connect.CodeResourceExhausted, "Retry-After", "0.01"))},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogin(t, nil, say...)
			l.config.CAFile = "/nonexistent/ca.pem"
			c, err := client.DialOnce(l.config)
			must(t, err)
			defer c.Close()
			id, err := submit(t.Context(), c)
			if name == "refused for good" {
				if connect.CodeOf(err) != connect.CodeInvalidArgument {
					t.Errorf("%v", err)
				}
				return
			}
			must(t, err)
			for _, h := range l.hosts {
				for _, seen := range h.seen {
					if seen != id {
						t.Errorf("request %s became %s", id, seen)
					}
				}
			}
		})
	}
}

// TestGauthdRefuses checks that a user without a token gets gauthd's own message, without another
// attempt.
func TestGauthdRefuses(t *testing.T) {
	l := newLogin(t, nil, yes)
	c, err := client.DialOnce(l.config)
	must(t, err)
	defer c.Close()
	c.OnRetry(func(err error, _, _ time.Duration) { t.Errorf("tried again: %v", err) })
	must(t, os.Rename(l.config.AuthSocket, l.config.AuthSocket+"0"))
	listener, err := net.Listen("unix", l.config.AuthSocket)
	must(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			answer := "error foreign_user uid 65534\n"
			first := make([]byte, 5)
			if _, err := io.ReadFull(conn, first); err == nil && string(first) == "POST " {
				answer = "HTTP/1.1 403 Forbidden\r\n" + auth.RelayHeader + ": refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
			}
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	_, err = submit(t.Context(), c)
	if !errors.Is(err, auth.ErrForeign) || client.Hint(err) == "" || len(l.hosts[0].seen) != 0 {
		t.Errorf("%v, hint %q", err, client.Hint(err))
	}
}

// TestDirectlyWhereGauthdCannot: gauthd that reaches no controller, or is not asked
// since the request is large, only says who calls.
func TestDirectlyWhereGauthdCannot(t *testing.T) {
	l := newLogin(t, []string{"127.0.0.1:1"}, yes)
	c, err := client.DialOnce(l.config)
	must(t, err)
	defer c.Close()
	for range 2 {
		_, err := submit(t.Context(), c)
		must(t, err)
	}
	large := newLogin(t, []string{}, yes)
	c, err = client.DialOnce(large.config)
	must(t, err)
	defer c.Close()
	_, err = c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{{Script: make([]byte, 300<<10)}}})
	must(t, err)
	large.config.AuthSocket = filepath.Join(t.TempDir(), "absent")
	if c, err = client.DialOnce(large.config); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := submit(ctx, c); client.Hint(err) == "" {
		t.Errorf("no gauthd at all: %v", err)
	}
}

// TestNotSent checks that a call is reported as not sent only if no controller accepted a connection,
// directly and by way of gauthd.
func TestNotSent(t *testing.T) {
	drops, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer drops.Close()
	go func() {
		for {
			conn, err := drops.Accept()
			if err != nil {
				return
			}
			io.ReadFull(conn, make([]byte, 1)) // the rest is unread, so that the client sees a reset
			conn.Close()
		}
	}()
	for _, c := range []struct {
		controllers []string
		unsent      bool
	}{{[]string{"127.0.0.1:1"}, true}, {[]string{"127.0.0.1:1", "127.0.0.1:2"}, true}, {[]string{"127.0.0.1:1", drops.Addr().String()}, false}} {
		l := newLogin(t, c.controllers, yes)
		l.config.Controllers, l.config.Timeout = c.controllers, 200*time.Millisecond
		for name, dial := range map[string]func(config.Client) (*client.Client, error){"direct": client.Dial, "gauthd": client.DialOnce} {
			calls, err := dial(l.config)
			must(t, err)
			defer calls.Close()
			if _, err := submit(t.Context(), calls); err == nil || client.NotSent(err) != c.unsent || connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("%s to %v: not sent %v: %v", name, c.controllers, client.NotSent(err), err)
			}
		}
	}
}

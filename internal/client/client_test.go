package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
)

// host is a controller as far as a client can tell: real TLS, and the test's answers.
type host struct {
	greylagv1connect.UnimplementedJobServiceHandler
	greylagv1connect.UnimplementedClusterServiceHandler
	leads   string // the leader that Status names
	members []*greylagv1.Member
	addr    string
	mu      sync.Mutex
	seen    []string // request IDs and tokens, in order of arrival
	say     func(n int) error
}

func (h *host) note(text string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, text)
	return h.say(len(h.seen))
}

func (h *host) SubmitJobs(_ context.Context, p *greylagv1.SubmitJobsRequest) (*greylagv1.SubmitJobsResponse, error) {
	if err := h.note(p.GetRequestId()); err != nil {
		return nil, err
	}
	return &greylagv1.SubmitJobsResponse{Index: 1}, nil
}

func (h *host) ListJobs(context.Context, *greylagv1.ListJobsRequest) (*greylagv1.ListJobsResponse, error) {
	return &greylagv1.ListJobsResponse{}, h.note("list")
}

func (h *host) GetStatus(context.Context, *greylagv1.GetStatusRequest) (*greylagv1.GetStatusResponse, error) {
	return &greylagv1.GetStatusResponse{Id: "ctl", Leader: h.leads, Members: h.members}, nil
}

func (h *host) WatchJobs(_ context.Context, _ *greylagv1.WatchJobsRequest, stream *connect.ServerStream[greylagv1.WatchJobsResponse]) error {
	if err := h.note("watch"); err != nil {
		return err
	}
	return stream.Send(&greylagv1.WatchJobsResponse{Index: 5})
}

// cluster returns a CA with controllers that answer as given; a nil answer is success.
func cluster(t *testing.T, say ...func(n int) error) (*pki.Trust, []*host) {
	t.Helper()
	ca, err := pki.NewCA("test", time.Now())
	must(t, err)
	var all []*host
	for i, f := range say {
		dir := t.TempDir()
		must(t, ca.Issue(dir, pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: pki.RoleController, Name: fmt.Sprint("c", i)}}, time.Now()))
		id, trust, err := pki.OpenIdentity(dir)
		must(t, err)
		h := &host{say: f}
		mux := http.NewServeMux()
		mux.Handle(greylagv1connect.NewJobServiceHandler(h))
		mux.Handle(greylagv1connect.NewClusterServiceHandler(h))
		s := &http.Server{Handler: mux, TLSConfig: pki.ServerTLS(trust, id)}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		h.addr = l.Addr().String()
		go func() { _ = s.ServeTLS(l, "", "") }()
		t.Cleanup(func() { s.Close() })
		all = append(all, h)
	}
	return ca.Trust(), all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unusedAddress is an address without a listener, outside the kernel's ephemeral range.
const unusedAddress = "127.0.0.1:1"

func yes(int) error { return nil }

// until answers with err before the n-th request.
func until(n int, err error) func(int) error {
	return func(i int) error {
		if i < n {
			return err
		}
		return nil
	}
}

func coded(code connect.Code, header ...string) error {
	err := connect.NewError(code, errors.New("because"))
	for i := 0; i+1 < len(header); i += 2 {
		err.Meta().Set(header[i], header[i+1])
	}
	return err
}

func submit(ctx context.Context, c *client.Client) (string, error) {
	id := client.NewRequestID()
	_, err := c.Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: id})
	return id, err
}

// TestNoRequestThatCannotBeWritten checks a message that cannot be encoded: connect would send an
// empty one instead.
func TestNoRequestThatCannotBeWritten(t *testing.T) {
	trust, all := cluster(t, yes)
	c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil)})
	_, err := c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: "caf\xe9"})
	if connect.CodeOf(err) != connect.CodeInvalidArgument || len(all[0].seen) > 0 {
		t.Errorf("%v; the controller was asked %q", err, all[0].seen)
	}
}

func TestTheSameRequestUntilItIsAnswered(t *testing.T) {
	for what, err := range map[string]error{
		"no leader": coded(connect.CodeUnavailable),
		"too often": coded(connect.CodeResourceExhausted, "Retry-After", "0.05"),
	} {
		trust, all := cluster(t, until(4, err))
		c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil)})
		id, err := submit(t.Context(), c)
		must(t, err)
		if got := strings.Join(all[0].seen, " "); got != strings.Repeat(id+" ", 3)+id {
			t.Errorf("%s: sent %s, want %s four times", what, got, id)
		}
	}
}

func TestAnswersThatAreFinal(t *testing.T) {
	for _, code := range []connect.Code{
		connect.CodeInvalidArgument, connect.CodePermissionDenied, connect.CodeNotFound, connect.CodeInternal,
		connect.CodeFailedPrecondition, connect.CodeResourceExhausted, connect.CodeUnauthenticated,
	} {
		trust, all := cluster(t, func(int) error { return coded(code, client.HintHeader, "do better") })
		c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil)})
		_, err := submit(t.Context(), c)
		if connect.CodeOf(err) != code || len(all[0].seen) != 1 || client.Hint(err) != "do better" {
			t.Errorf("%v: %v after %d attempts, hint %q", code, err, len(all[0].seen), client.Hint(err))
		}
	}
}

func TestTheNextControllerIsAsked(t *testing.T) {
	trust, all := cluster(t, yes, yes)
	for _, list := range [][]string{{unusedAddress, all[0].addr}, {all[0].addr, unusedAddress}} {
		for range 4 { // whichever is asked first
			c := client.New(client.Config{Controllers: list, TLS: pki.ClientTLS(trust, nil)})
			_, err := submit(t.Context(), c)
			must(t, err)
		}
	}
}

func TestTheLeaderThatIsNamedIsAsked(t *testing.T) {
	var leader *host
	trust, all := cluster(t, func(int) error { return coded(connect.CodeUnavailable, client.LeaderHeader, leader.addr) }, yes)
	leader = all[1]
	c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil)})
	for range 3 {
		_, err := submit(t.Context(), c)
		must(t, err)
	}
	if len(all[0].seen) != 1 || len(leader.seen) != 3 {
		t.Errorf("the follower was asked %d times, the leader %d", len(all[0].seen), len(leader.seen))
	}
}

func TestAStreamThatHasNotBegunIsOpenedAgain(t *testing.T) {
	trust, all := cluster(t, until(3, coded(connect.CodeUnavailable)))
	c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil)})
	var got uint64
	must(t, c.Watch(t.Context(), &greylagv1.WatchJobsRequest{}, func(m *greylagv1.WatchJobsResponse) error { got = m.GetIndex(); return nil }))
	if got != 5 || len(all[0].seen) != 3 {
		t.Errorf("received %d after %d attempts", got, len(all[0].seen))
	}
	stop := errors.New("enough")
	if err := c.Watch(t.Context(), &greylagv1.WatchJobsRequest{}, func(*greylagv1.WatchJobsResponse) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
}

func TestGivingUp(t *testing.T) {
	trust, all := cluster(t, func(int) error { return coded(connect.CodeUnavailable) })
	var reported []error
	c := client.New(client.Config{
		Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil), Timeout: time.Second,
		Retry: func(err error, _, _ time.Duration) { reported = append(reported, err) },
	})
	_, err := submit(t.Context(), c)
	if asked := len(all[0].seen); connect.CodeOf(err) != connect.CodeUnavailable || asked == 0 || len(reported) != asked-1 {
		t.Errorf("%v after %d attempts, reported %v", err, asked, reported)
	}
	for _, why := range reported {
		if why.Error() != "because" {
			t.Errorf("reported %v", why)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := submit(ctx, c); err == nil {
		t.Error("answered although the caller has gone")
	}
	if _, err := submit(t.Context(), client.New(client.Config{TLS: pki.ClientTLS(trust, nil)})); err == nil {
		t.Error("answered without a controller")
	}
}

// TestErrorOfAControllerIsReported checks that the error reports that there is no leader, not that
// another is missing, whichever was asked last.
func TestErrorOfAControllerIsReported(t *testing.T) {
	trust, all := cluster(t, func(int) error { return coded(connect.CodeUnavailable) })
	var callers sync.WaitGroup
	for range 5 { // the first controller is random
		callers.Go(func() {
			c := client.New(client.Config{
				Controllers: []string{all[0].addr, unusedAddress, unusedAddress}, TLS: pki.ClientTLS(trust, nil), Timeout: 3 * time.Second,
			})
			defer c.Close()
			if _, err := submit(t.Context(), c); err == nil || !strings.HasSuffix(err.Error(), "because") {
				t.Errorf("reported %v", err)
			}
		})
	}
	callers.Wait()
}

func TestAStrangeControllerIsNotAskedForLong(t *testing.T) {
	_, all := cluster(t, yes)
	strange, _ := cluster(t)
	c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(strange, nil), Retry: func(err error, _, _ time.Duration) {
		if errors.Is(err, pki.ErrUntrusted) {
			t.Error("it is asked again")
		}
	}})
	_, err := submit(t.Context(), c)
	if !errors.Is(err, pki.ErrUntrusted) || len(all[0].seen) != 0 {
		t.Errorf("%v; the controller was asked %q", err, all[0].seen)
	}
}

// tokens counts how often it is asked.
type tokens struct {
	err error
	n   int
}

func (s *tokens) Token(context.Context) (string, error) { s.n++; return "t", s.err }

func TestWithoutAToken(t *testing.T) {
	trust, all := cluster(t, yes)
	source := &tokens{err: hint.New(auth.ErrNoDaemon, "start gauthd")}
	c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil), Tokens: source})
	_, err := submit(t.Context(), c)
	if !errors.Is(err, auth.ErrNoDaemon) || client.Hint(err) != "start gauthd" || source.n != 1 || len(all[0].seen) != 0 {
		t.Errorf("%v, hint %q, after %d tokens", err, client.Hint(err), source.n)
	}
	_, err = client.Dial(config.Client{CAFile: "/nonexistent/ca.pem"})
	if err == nil || client.Hint(err) == "" {
		t.Errorf("a host without a cluster: %v", err)
	}
}

package client_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

func noLeader(int) error {
	return coded(connect.CodeUnavailable, client.CodeHeader, client.CodeNoLeader)
}

// TestReadFailsSoonWithoutALeader checks that a read-only call fails long before a change
// would.
func TestReadFailsSoonWithoutALeader(t *testing.T) {
	t.Parallel()
	trust, all := cluster(t, noLeader)
	gone := unusedAddress
	c := client.New(client.Config{Controllers: []string{gone, all[0].addr}, TLS: pki.ClientTLS(trust, nil), Timeout: 10 * time.Minute})
	began := time.Now()
	_, err := c.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
	const want = "there is no leader: "
	reported := gone + " refuses connections; " + all[0].addr + " (ctl) responds but has no leader"
	if took := time.Since(began); connect.CodeOf(err) != connect.CodeUnavailable || !strings.HasSuffix(err.Error(), want+reported) || took > 2*time.Minute {
		t.Errorf("after %s: %v, want %s", took, err, reported)
	}
	if !strings.Contains(client.Hint(err), "--stale") {
		t.Errorf("hint %q", client.Hint(err))
	}
}

// TestAReaderWaitsForALeader checks that a call waits for a leader that cannot answer yet.
func TestAReaderWaitsForALeader(t *testing.T) {
	t.Parallel()
	began := time.Now()
	trust, all := cluster(t, func(int) error {
		if time.Since(began) < 5*time.Second {
			return coded(connect.CodeUnavailable)
		}
		return nil
	})
	all[0].leads = "ctl"
	c := client.New(client.Config{Controllers: []string{all[0].addr}, TLS: pki.ClientTLS(trust, nil), Timeout: time.Minute})
	_, err := c.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
	must(t, err)
}

// TestChangeWithoutALeader ends with the status of each controller.
func TestChangeWithoutALeader(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	trust, all := cluster(t, noLeader)
	gone := unusedAddress
	for want, list := range map[string][]string{"no controller responds: " + gone: {gone}, "there is no leader: " + all[0].addr: {all[0].addr}} {
		reported := 0
		c := client.New(client.Config{
			Controllers: list, TLS: pki.ClientTLS(trust, nil), Timeout: timeout,
			Retry: func(_ error, tried, left time.Duration) {
				reported++
				if tried+left != timeout {
					t.Errorf("tried for %s, %s left", tried, left)
				}
			},
		})
		if _, err := submit(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) || reported == 0 {
			t.Errorf("%v, want %s; reported %d times", err, want, reported)
		}
	}
}

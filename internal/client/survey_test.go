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

// TestAReaderIsToldSoonThatNobodyLeads: long before a change would be given up.
func TestAReaderIsToldSoonThatNobodyLeads(t *testing.T) {
	t.Parallel()
	trust, all := cluster(t, noLeader)
	gone := nobody
	c := client.New(client.Config{Controllers: []string{gone, all[0].addr}, TLS: pki.ClientTLS(trust, nil), Timeout: 10 * time.Minute})
	began := time.Now()
	_, err := c.Jobs().ListJobs(t.Context(), &greylagv1.ListJobsRequest{})
	const want = "no controller leads: "
	told := gone + " refuses connections; " + all[0].addr + " (ctl) answers and knows no leader"
	if took := time.Since(began); connect.CodeOf(err) != connect.CodeUnavailable || !strings.HasSuffix(err.Error(), want+told) || took > 2*time.Minute {
		t.Errorf("after %s: %v, want %s", took, err, told)
	}
	if !strings.Contains(client.Hint(err), "--stale") {
		t.Errorf("hint %q", client.Hint(err))
	}
}

// TestAReaderWaitsForALeader: one that leads and cannot answer yet is waited for.
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

// TestAChangeThatNobodyCouldMake ends with how each controller is.
func TestAChangeThatNobodyCouldMake(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	trust, all := cluster(t, noLeader)
	gone := nobody
	for want, list := range map[string][]string{"no controller answers: " + gone: {gone}, "no controller leads: " + all[0].addr: {all[0].addr}} {
		told := 0
		c := client.New(client.Config{
			Controllers: list, TLS: pki.ClientTLS(trust, nil), Timeout: timeout,
			Retry: func(_ error, tried, left time.Duration) {
				told++
				if tried+left != timeout {
					t.Errorf("tried for %s, %s left", tried, left)
				}
			},
		})
		if _, err := submit(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) || told == 0 {
			t.Errorf("%v, want %s; told %d times", err, want, told)
		}
	}
}

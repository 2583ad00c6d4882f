package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/test/cluster"
)

// credits measures credits through the API of three controllers: answers are on the disks of two of
// them.
func credits(ctx context.Context, out *paper) error {
	c, err := cluster.Start(ctx, cluster.Options{Name: "bench", Controllers: 3, Runtime: "process", Policy: "cluster = \"bench\"\n[credits]\nenabled = true\n"})
	if err != nil {
		return err
	}
	var users []string
	for i := range grantees {
		users = append(users, grantee(i))
	}
	for _, args := range [][]string{
		{"account", "add", "org"}, {"account", "add", "project", "parent=org"}, {"account", "add", "project", "user=root," + strings.Join(users, ",")},
		{"credit", "price", "h100", "2"}, {"credit", "grant", "org", "1000000000", "--class", "purchase"},
	} {
		if r, failed := c.Run(ctx, "gctl", args...); failed != nil || r.Exit != 0 {
			return errors.Join(fmt.Errorf("gctl %v: %s: %w", args, r.Stderr, failed), c.Stop())
		}
	}
	out.table("Credits through the API of 3 controllers, each with its log on disk", "operation", "clients", "operations/s", "median", "99 %", "CPU an operation: controllers")
	for _, x := range []struct {
		what    string
		clients int
		do      asking
	}{
		{"a grant", 1, grantOne}, {"a grant", 64, grantOne},
		{"a job submitted, its credits set aside", 1, submitPaid(1)}, {"a job submitted, its credits set aside", 64, submitPaid(1)},
		{"the same, 256 jobs a request", 8, submitPaid(256)},
		{"a balance read, as agreed now", 1, readBalance}, {"a balance read, as agreed now", 64, readBalance},
	} {
		if err = out.hammer(ctx, c, x.what, x.clients, x.do); err != nil {
			break
		}
	}
	return errors.Join(err, c.Stop())
}

// asking runs something once and returns the number of operations.
type asking func(context.Context, *client.Client) (int, error)

// grants counts the grants of this run, so that each user gets some.
var grants atomic.Int64

func grantOne(ctx context.Context, c *client.Client) (int, error) {
	x := &greylagv1.GrantCredits{
		Account: "project", User: grantee(int(grants.Add(1))), Class: greylagv1.BucketClass_BUCKET_CLASS_GRANT, Amount: int64(accounting.One), Priority: 50,
	}
	_, err := c.Credits().ChangeCredits(ctx, &greylagv1.ChangeCreditsRequest{
		RequestId: client.NewRequestID(), Change: &greylagv1.ChangeCreditsRequest_Grant{Grant: x},
	})
	return 1, err
}

func submitPaid(many int) asking {
	return func(ctx context.Context, c *client.Client) (int, error) {
		r := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID()}
		for range many {
			s := spec()
			s.Account, s.Request.GpuTypes = "project", []string{"h100"}
			r.Jobs = append(r.Jobs, s)
		}
		answer, err := c.Jobs().SubmitJobs(ctx, r)
		if err == nil && answer.Lien == 0 {
			err = errors.New("nothing was set aside")
		}
		return many, err
	}
}

func readBalance(ctx context.Context, c *client.Client) (int, error) {
	answer, err := c.Credits().ListBalances(ctx, &greylagv1.ListBalancesRequest{Accounts: []string{"project"}, User: "root"})
	if err == nil && len(answer.Balances) != 1 {
		err = fmt.Errorf("%d balances", len(answer.Balances))
	}
	return 1, err
}

// hammer runs something from many clients for a while.
func (p *paper) hammer(ctx context.Context, c *cluster.Cluster, what string, clients int, do asking) error {
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed error
	var each []time.Duration
	ops, before, end := 0, controllersCPU(c), time.Now().Add(window)
	for range clients {
		one, err := c.Client()
		if err != nil {
			return err
		}
		all.Go(func() {
			defer one.Close()
			for time.Now().Before(end) {
				begun := time.Now()
				n, err := do(ctx, one)
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					ops, each = ops+n, append(each, time.Since(begun))
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if failed != nil {
		return fmt.Errorf("%s: %w", what, failed)
	}
	p.row(what, clients, rate(ops, window), ms(quantile(each, 0.5)), ms(quantile(each, 0.99)), micros(controllersCPU(c)-before, ops))
	return nil
}

package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
)

// TestAbandonedUploadsKeepNoPlace checks that interrupted submissions of one user do not use up the
// uploads of others.
func TestAbandonedUploadsKeepNoPlace(t *testing.T) {
	w := newWorld(t, options{})
	submit := func(ctx context.Context, c *client.Client, name string) error {
		spec := job(name)
		spec.Script = []byte("#!/bin/sh\n# " + name + "\n" + strings.Repeat("# much text\n", 340_000))
		_, err := c.Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
		return err
	}
	c, applied := w.as(ann), func() uint64 { return w.all[0].log.Status().AppliedIndex }
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		before, left := applied(), make(chan error, 1)
		go func() { left <- submit(ctx, c, fmt.Sprint("abandoned ", i)) }()
		w.until("a part of the script", func() bool { return applied() > before })
		cancel()
		<-left
	}
	must(t, submit(t.Context(), w.as(bob), "bob's"))
}

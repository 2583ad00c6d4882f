package audit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// Submitter is a client for load. It repeats a request, with the same ID, until the outcome is
// known or the context ends.
type Submitter interface {
	SubmitJobs(context.Context, *greylagv1.SubmitJobsRequest) (*greylagv1.SubmitJobsResponse, error)
}

// Load submits jobs from many clients at once.
type Load struct {
	Clients int
	Submit  Submitter
	Answers *Answers
	// Real makes one in that many submissions a job that runs; 0: none. The others are held.
	Real int
	// Jobs returns the specification of one that runs.
	Job func(name string) *greylagv1.JobSpec
	// Limit ends the load after that many submissions of each client; 0: none.
	Limit int
	// Pause is between two submissions of one client.
	Pause time.Duration
}

// Run submits until ctx ends or the limit is reached. A submission under way when ctx ends gets ten
// seconds more. The error is the first refusal.
func (l Load) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	var once sync.Once
	var refused error
	for client := range l.Clients {
		wait.Go(func() {
			if err := l.client(ctx, client); err != nil {
				once.Do(func() { refused = err })
			}
		})
	}
	wait.Wait()
	return refused
}

func (l Load) client(ctx context.Context, client int) error {
	run := hex.EncodeToString(random(4))
	for n := 0; ctx.Err() == nil && (l.Limit == 0 || n < l.Limit); n++ {
		name := fmt.Sprintf("l%s-%d-%d", run, client, n)
		spec := Waiting(name)
		if l.Real > 0 && n%l.Real == 0 {
			spec = l.Job(name)
		}
		last, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(10*time.Second, cancel) })
		answer, err := l.Submit.SubmitJobs(last, &greylagv1.SubmitJobsRequest{RequestId: name, Jobs: []*greylagv1.JobSpec{spec}})
		stop()
		cancel()
		switch {
		case err == nil && len(answer.Jobs) == 1:
			l.Answers.Acknowledged(name, answer.Jobs[0].Id)
		case ctx.Err() != nil:
			l.Answers.Unknown(name)
		default:
			l.Answers.Unknown(name)
			return fmt.Errorf("submit %s: %w", name, err)
		}
		if l.Pause > 0 {
			time.Sleep(l.Pause)
		}
	}
	return nil
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand)
	return b
}

// Waiting returns a job held by its user, so that it never runs.
func Waiting(name string) *greylagv1.JobSpec {
	return &greylagv1.JobSpec{Name: name, Script: []byte("#!/bin/sh\ntrue\n"), WorkDir: "/", Output: "/dev/null", Hold: true}
}

package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

// call has the forwarder of a node pass a call on for a job of a user, and returns the status.
func call(ctx context.Context, f *client.Forwarder, uid uint32, body io.Reader) int {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/greylag.v1.JobService/SubmitJobs", body)
	request.Header.Set("Content-Type", "application/proto")
	answer := httptest.NewRecorder()
	f.ForwardFor(answer, request, auth.Attempt{Job: 12, Number: 1}, uid)
	return answer.Code
}

// TestLargeRequestsOfOneUserKeepNoOtherWaiting: a user's jobs begin many large requests and do not end
// them. One of another user's job is passed on meanwhile.
func TestLargeRequestsOfOneUserKeepNoOtherWaiting(t *testing.T) {
	ca := newTestCA(t)
	h := serveNodes(t, ca, func(int) error { return nil })
	dir := t.TempDir()
	must(t, ca.Issue(dir, pki.Grant{Peer: pki.Peer{ClusterID: "test", Role: pki.RoleNode, Name: "n1"}}, time.Now()))
	id, trust, err := pki.OpenIdentity(dir)
	must(t, err)
	f := client.NewJobForwarder(client.Seeds(h.addr), pki.ClientTLS(trust, id))
	stalled, stop := context.WithCancel(t.Context())
	defer stop()
	unsent, end := io.Pipe()
	defer end.Close()
	ended := make(chan struct{})
	for range 8 {
		go func() {
			call(stalled, f, 1000, io.MultiReader(strings.NewReader("begun"), unsent))
			ended <- struct{}{}
		}()
	}
	body, err := proto.Marshal(&greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{{Script: make([]byte, 1<<20)}}})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 20 { // until all of the first user's are there
		if status := call(ctx, f, 1001, bytes.NewReader(body)); status != http.StatusOK {
			t.Fatalf("a large request of another user: status %d", status)
		}
	}
	stop()
	must(t, end.Close())
	for range 8 {
		<-ended
	}
	if status := call(t.Context(), f, 1000, bytes.NewReader(body)); status != http.StatusOK {
		t.Errorf("the first user's next request: status %d", status)
	}
}

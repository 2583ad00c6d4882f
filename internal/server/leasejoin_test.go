package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// unit is one unit of the currency.
const unit = 1_000_000

// cloudWorld is a cluster that leases nodes, by the commands of the test only.
func cloudWorld(t *testing.T) *world { return cloudWorldWith(t, nil) }

// cloudWorldWith is cloudWorld with a check of identity documents.
func cloudWorldWith(t *testing.T, identify func(ctx context.Context, instance, document string) error) *world {
	return newWorld(t, options{identify: identify, policy: func(p *cluster.Policy) {
		p.Partitions = append(p.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
		p.Burst.On, p.Burst.MonthlyLimit, p.Burst.MinPending = true, 1000*unit, 24*time.Hour
	}})
}

// proposed proposes a command and returns the answer and the index of a command, which must not be refused.
func (w *world) proposed(c command.Command) (command.Result, uint64) {
	w.t.Helper()
	answer, index, err := w.leader().loops.Propose(w.t.Context(), c)
	must(w.t, err)
	if refusal, is := answer.(*command.Refusal); is {
		w.t.Fatal(refusal)
	}
	return answer, index
}

// lease leases nodes for a new job and requests them with a token. It returns the first lease.
func (w *world) lease(owner cluster.Identity, nodes int32, token pki.TokenHash) cluster.LeaseID {
	w.t.Helper()
	now := cluster.InstantOf(time.Now())
	w.proposed(&command.SetOffers{Offers: []cluster.Offer{{Name: "p5/a", Market: cluster.Spot, Region: "us", Type: "p5", Price: unit, PricedAt: now, CPUs: 8, Memory: 32 * cluster.GiB, Boot: time.Minute}}})
	submitted, index := w.proposed(&command.SubmitJobs{
		Actor: command.Actor{Identity: owner},
		Jobs: []command.Submission{{Spec: cluster.JobSpec{
			Name: "test", Partition: "cloud", WorkDir: "/", Image: "example.org/image:1", TimeLimit: time.Hour, Burst: cluster.Burst{Mode: cluster.BurstOnly},
			Request: cluster.Request{Nodes: nodes, TasksPerNode: 1, CPUsPerTask: 1},
		}}},
	})
	job := submitted.(*command.Submitted).First[0]
	const lifetime = 2 * time.Hour
	w.proposed(&command.CommitPlan{Plan: cluster.Plan{Index: index, Launches: []cluster.Launch{{
		Job: job, Attempt: 1, Offer: cluster.OfferKey{Name: "p5/a", Market: cluster.Spot}, Nodes: nodes, MaxPrice: unit, Lifetime: lifetime,
		Cost: 2 * unit * int64(nodes), Why: "test",
	}}}})
	var first cluster.LeaseID
	for l := range w.leader().state().Leases() {
		if l.Job == job && first == 0 {
			first = l.ID
		}
	}
	if first == 0 {
		w.t.Fatal("no lease was planned")
	}
	w.proposed(&command.UpdateLeases{Updates: []command.LeaseUpdate{{Lease: first, Event: command.LaunchRequested, Try: 1, Token: cluster.Digest(token)}}})
	return first
}

// joinLeased exchanges the token of a launch for an identity in a directory of its own.
func (w *world) joinLeased(token pki.JoinToken, instance string, timeout time.Duration) (*pki.Identity, error) {
	w.t.Helper()
	return w.joinLeasedAs(token, instance, "", timeout)
}

// joinLeasedAs is joinLeased with an identity document.
func (w *world) joinLeasedAs(token pki.JoinToken, instance, document string, timeout time.Duration) (*pki.Identity, error) {
	w.t.Helper()
	key, csr, err := pki.NewRequest(token.Role)
	must(w.t, err)
	c := w.client(client.Config{TLS: pki.PinnedTLS(token.CA), Timeout: timeout}, nil)
	answer, err := c.Cluster().Join(w.t.Context(), &greylagv1.JoinRequest{Token: token.String(), Name: "ignored", Csr: csr, Instance: instance, Identity: document})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(w.t.TempDir(), "pki")
	must(w.t, pki.SaveIdentity(dir, w.ca.Trust(), key, answer.GetCertificate()))
	id, _, err := pki.OpenIdentity(dir)
	return id, err
}

func TestLeasedNodesJoin(t *testing.T) {
	w := cloudWorld(t)
	expires := time.Now().Add(time.Hour)
	token, hash, err := w.ca.LaunchToken(1, 1, expires)
	must(t, err)
	other, otherHash, err := w.ca.LaunchToken(3, 1, expires)
	must(t, err)
	if _, err := w.joinLeased(token, "i-1", time.Second); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("without a launch: %v", err)
	}
	first, second := w.lease(ann, 2, hash), w.lease(bob, 1, otherHash)
	if _, err := w.joinLeased(token, "i-1", time.Second); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("an instance that is not known yet: %v", err)
	}
	start := func(lease cluster.LeaseID, instance string) command.LeaseUpdate {
		return command.LeaseUpdate{Lease: lease, Event: command.LeaseStarted, Try: 1, Instance: instance, Price: unit, At: cluster.InstantOf(time.Now())}
	}
	joined := make(chan error, 1)
	var id *pki.Identity
	go func() { // it asks again until the instance is known
		var err error
		id, err = w.joinLeased(token, "i-1", time.Minute)
		joined <- err
	}()
	w.proposed(&command.UpdateLeases{Updates: []command.LeaseUpdate{start(first, "i-1"), start(first+1, "i-2"), start(second, "i-3")}})
	must(t, <-joined)
	if id.Peer().Name != first.NodeName() || id.Peer().Role != pki.RoleNode {
		t.Errorf("joined as %v, want %s", id.Peer(), first.NodeName())
	}
	_, err = w.joinLeased(token, "i-1", time.Second)
	says(t, "a second host with the instance", err, "the join token was used by "+first.NodeName())
	_, err = w.joinLeased(other, "i-2", time.Second)
	says(t, "the token of another launch", err, `instance "i-2" does not belong to the launch`)
	_, err = w.join(token.String(), "n1")
	says(t, "the token of a launch without an instance", err, "the join token is unknown")
	if id, err := w.joinLeased(token, "i-2", time.Second); err != nil || id.Peer().Name != (first+1).NodeName() {
		t.Errorf("the other node of the launch: %v", err)
	}
	w.proposed(&command.EndLeases{Actor: command.Actor{Role: command.RoleAdmin, Identity: root}, Leases: []cluster.LeaseID{second}, Now: true, Why: "test"})
	_, err = w.joinLeased(other, "i-3", time.Second)
	says(t, "a lease that ends", err, "the lease of instance i-3 is TERMINATING")
}

// TestLeasedNodesProveTheirIdentity: a host needs a document that the provider program accepts.
func TestLeasedNodesProveTheirIdentity(t *testing.T) {
	var asked []string
	w := cloudWorldWith(t, func(_ context.Context, instance, document string) error {
		asked = append(asked, instance+" "+document)
		switch document {
		case "good":
			return nil
		case "slow":
			return burst.ErrTimeout
		}
		return fmt.Errorf("%w: of another instance", burst.ErrNotProved)
	})
	token, hash, err := w.ca.LaunchToken(1, 1, time.Now().Add(time.Hour))
	must(t, err)
	lease := w.lease(ann, 1, hash)
	w.proposed(&command.UpdateLeases{Updates: []command.LeaseUpdate{{Lease: lease, Event: command.LeaseStarted, Try: 1, Instance: "i-1", Price: unit, At: cluster.InstantOf(time.Now())}}})
	_, err = w.joinLeased(token, "i-1", time.Second)
	says(t, "no document", err, "has no identity document")
	_, err = w.joinLeasedAs(token, "i-1", "bad", time.Second)
	says(t, "the document of another instance", err, burst.ErrNotProved.Error())
	if _, err = w.joinLeasedAs(token, "i-1", "slow", time.Second); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the program does not answer: %v", err)
	}
	_, err = w.joinLeasedAs(token, "i-1", strings.Repeat("x", burst.MaxDocument+1), time.Second)
	says(t, "a long document", err, "at most 16384")
	if id, err := w.joinLeasedAs(token, "i-1", "good", time.Second); err != nil || id.Peer().Name != lease.NodeName() {
		t.Errorf("the right document: %v", err)
	}
	if last := asked[len(asked)-1]; last != "i-1 good" {
		t.Errorf("the program was asked about %q", last)
	}
}

func TestLeasedNodesReportAndEnd(t *testing.T) {
	w := cloudWorld(t)
	token, hash, err := w.ca.LaunchToken(1, 1, time.Now().Add(time.Hour))
	must(t, err)
	lease := w.lease(ann, 1, hash)
	w.proposed(&command.UpdateLeases{Updates: []command.LeaseUpdate{{Lease: lease, Event: command.LeaseStarted, Try: 1, Instance: "i-1", Price: unit, At: cluster.InstantOf(time.Now())}}})
	id, err := w.joinLeased(token, "i-1", time.Second)
	must(t, err)
	session := w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), id)}, nil).Node()
	register := func() (*greylagv1.RegisterNodeResponse, error) {
		return session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "boot", Cpus: 8, Memory: 32 << 30})
	}
	answer, err := register()
	must(t, err)
	deadline := time.Now().Add(2 * time.Minute).UTC().Truncate(time.Second)
	_, err = session.Report(t.Context(), &greylagv1.ReportTasksRequest{Epoch: answer.GetEpoch(), ReclaimAt: timestamppb.New(deadline)})
	must(t, err)
	v := w.leader().state()
	n, _ := v.Node(lease.NodeName())
	if l, _ := v.Lease(lease); n.Reclaim.Time().UTC() != deadline || l.State != cluster.LeaseDraining {
		t.Errorf("after the report: deadline %v, want %v; lease %s", n.Reclaim.Time(), deadline, l.State)
	}
	w.proposed(&command.EndLeases{Actor: command.Actor{Role: command.RoleAdmin, Identity: root}, Leases: []cluster.LeaseID{lease}, Now: true, Why: "test"})
	if _, err = register(); !client.LeaseEnded(err) {
		t.Errorf("the lease ends: %v", err)
	}
	says(t, "the lease ends", err, "the lease of node "+lease.NodeName()+" is TERMINATING")
	w.proposed(&command.UpdateLeases{Updates: []command.LeaseUpdate{{Lease: lease, Event: command.LeaseEnded, Cost: -1}}})
	if _, err = register(); !client.LeaseEnded(err) {
		t.Errorf("the lease has ended: %v", err)
	}
}

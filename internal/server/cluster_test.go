package server_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestJoinAndRenew(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	made, err := w.as(root, w.follower()).Cluster().CreateToken(t.Context(), &greylagv1.CreateTokenRequest{Role: greylagv1.HostRole_HOST_ROLE_NODE})
	must(t, err)
	token, err := pki.ParseToken(made.GetToken())
	must(t, err)
	join := func(name string) (*greylagv1.JoinResponse, error) {
		key, csr, err := pki.NewRequest(pki.RoleNode)
		must(t, err)
		// The joining host has only the token, and contacts a follower.
		c := w.client(client.Config{TLS: pki.PinnedTLS(token.CA)}, []*controllerHost{w.follower()})
		answer, err := c.Cluster().Join(t.Context(), &greylagv1.JoinRequest{Token: made.GetToken(), Name: name, Csr: csr})
		if err == nil {
			trust, failed := pki.PinnedTrust(answer.GetCa(), token.CA)
			must(t, failed)
			must(t, pki.SaveIdentity(filepath.Join(w.dir, "joined"), trust, key, answer.GetCertificate()))
		}
		return answer, err
	}
	if _, err := join("no/name"); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an invalid name: %v", err)
	}
	answer, err := join("n7") // the refusals before did not use the token up
	must(t, err)
	if len(answer.GetControllers()) != 2 || answer.GetClusterId() != "test" || len(answer.GetCaKey()) != 0 {
		t.Errorf("joined: %v", answer)
	}
	if _, err := join("n8"); err == nil || !strings.Contains(err.Error(), "n7") {
		t.Errorf("a second host with the same token: %v", err)
	}
	if _, err := join("n7"); err == nil {
		t.Error("a second host with the token joined under the name of the first")
	}
	id, trust, err := pki.OpenIdentity(filepath.Join(w.dir, "joined"))
	must(t, err)
	if want := (pki.Peer{ClusterID: "test", Role: pki.RoleNode, Name: "n7"}); id.Peer() != want {
		t.Errorf("joined as %v", id.Peer())
	}
	before := id.Certificate().Leaf.SerialNumber
	must(t, pki.RenewNow(t.Context(), filepath.Join(w.dir, "joined"), id, pki.RenewFrom([]string{w.follower().addr}, trust, id)))
	must(t, id.Check())
	if after := id.Certificate().Leaf; after.SerialNumber.Cmp(before) == 0 || id.Peer().Name != "n7" {
		t.Error("the certificate is as before")
	}
}

// TestBeforeThePolicy checks that an administrator is not denied while a new cluster has a leader
// and no policy yet: the call waits, or the answer says to retry.
func TestBeforeThePolicy(t *testing.T) {
	w := newWorld(t, options{asleep: true, policy: func(p *cluster.Policy) { p.Admins = append(p.Admins, "ann") }})
	ask := &greylagv1.CreateTokenRequest{RequestId: client.NewRequestID(), Role: greylagv1.HostRole_HOST_ROLE_NODE}
	hasty := w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), nil), Tokens: w.tokens(ann), Timeout: time.Second}, nil)
	if _, err := hasty.Cluster().CreateToken(t.Context(), ask); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("without a policy: %v", err)
	}
	if status, err := hasty.Cluster().GetStatus(t.Context(), &greylagv1.GetStatusRequest{}); err != nil || status.GetLeader() == "" {
		t.Errorf("status: %v, %v", status, err)
	}
	w.all[0].wake()
	if answer, err := w.as(ann).Cluster().CreateToken(t.Context(), ask); err != nil || answer.GetToken() == "" {
		t.Errorf("with one: %v", err)
	}
}

func TestAControllerJoins(t *testing.T) {
	w := newWorld(t, options{})
	made, err := w.as(root).Cluster().CreateToken(t.Context(), &greylagv1.CreateTokenRequest{Role: greylagv1.HostRole_HOST_ROLE_CONTROLLER})
	must(t, err)
	_, csr, err := pki.NewRequest(pki.RoleController)
	must(t, err)
	answer, err := w.as(ann).Cluster().Join(t.Context(), &greylagv1.JoinRequest{Token: made.GetToken(), Name: "c2", Csr: csr, Advertise: "10.0.0.7:7117"})
	must(t, err)
	_, err = w.as(ann).Cluster().Join(t.Context(), &greylagv1.JoinRequest{Token: made.GetToken(), Name: "c2", Csr: csr, Advertise: "10.0.0.7:7117"})
	must(t, err) // the answer may have been lost
	ca, err := pki.NewCAFrom(w.ca.Trust(), answer.GetCaKey())
	must(t, err)
	peer, leaf, err := ca.Trust().VerifyDER(answer.GetCertificate(), time.Now())
	if must(t, err); peer.Role != pki.RoleController || len(leaf.IPAddresses) != 1 || leaf.IPAddresses[0].String() != "10.0.0.7" {
		t.Errorf("joined as %v with %v", peer, leaf.IPAddresses)
	}
	if _, err := w.as(root).Cluster().CreateToken(t.Context(), &greylagv1.CreateTokenRequest{Role: 99}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a token for an emperor: %v", err)
	}
}

func TestNodesAndInfo(t *testing.T) {
	w := newWorld(t, options{})
	for _, name := range []string{"n1", "n2", "n3"} {
		newNode(w, name).next()
	}
	c := w.as(olga).Cluster()
	drained, err := c.UpdateNodes(t.Context(), &greylagv1.UpdateNodesRequest{RequestId: client.NewRequestID(), Names: []string{"n[2-3]"}, Action: greylagv1.NodeAction_NODE_ACTION_DRAIN, Reason: "new fans"})
	if must(t, err); strings.Join(drained.GetNames(), " ") != "n2 n3" {
		t.Errorf("drained %v", drained)
	}
	w.submit(w.as(ann), job("waits"))
	info, err := c.GetInfo(t.Context(), &greylagv1.GetInfoRequest{})
	if must(t, err); info.RunningJobs+info.PendingJobs != 1 {
		t.Errorf("%d jobs run, %d wait", info.RunningJobs, info.PendingJobs)
	}
	var lines []string
	for _, g := range info.GetPartitions()[0].GetGroups() {
		lines = append(lines, wire.Word(g.GetState())+" "+g.GetNodeList()+" "+g.GetGpus())
	}
	if got := strings.Join(lines, ", "); got != "IDLE n1 h100:2, DRAINED n[2-3] h100:2" {
		t.Errorf("info: %s", got)
	}
	info, err = c.GetInfo(t.Context(), &greylagv1.GetInfoRequest{Partitions: []string{"main"}, Nodes: []string{"n[1-2]"}})
	must(t, err)
	if g := info.GetPartitions()[0].GetGroups(); len(info.GetPartitions()) != 1 || len(g) != 2 || g[1].GetNodeList() != "n2" || g[1].GetGpusTotal() != 2 {
		t.Errorf("info of two nodes: %v", info)
	}
	for _, none := range []*greylagv1.GetInfoRequest{{Partitions: []string{"gone"}}, {Nodes: []string{"n9"}}} {
		if _, err := c.GetInfo(t.Context(), none); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%v: %v", none, err)
		}
	}
	nodes, err := c.ListNodes(t.Context(), &greylagv1.ListNodesRequest{Names: []string{"n2"}})
	must(t, err)
	if n := nodes.GetNodes()[0]; !n.GetDrain() || n.GetReason() != "new fans" || n.GetReasonBy() != "olga" || !n.GetSince().AsTime().Equal(n.GetReasonSince().AsTime()) || len(n.GetPartitions()) != 1 || len(n.GetGpus()) != 2 {
		t.Errorf("node: %v", n)
	}
	if _, err := c.ListNodes(t.Context(), &greylagv1.ListNodesRequest{Names: []string{"n9"}}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("no such node: %v", err)
	}
	if _, err := c.UpdateNodes(t.Context(), &greylagv1.UpdateNodesRequest{Names: []string{"n1"}, Action: greylagv1.NodeAction_NODE_ACTION_DRAIN}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("drain without a reason: %v", err)
	}
}

func TestPolicy(t *testing.T) {
	w := newWorld(t, options{})
	c := w.as(root).Cluster()
	now, err := c.GetPolicy(t.Context(), &greylagv1.GetPolicyRequest{})
	must(t, err)
	text := strings.Replace(now.GetToml(), "private = false", "private = true", 1)
	dry, err := c.SetPolicy(t.Context(), &greylagv1.SetPolicyRequest{Toml: text, DryRun: true})
	if must(t, err); dry.GetDiff() != "-private = false\n+private = true\n" || dry.GetVersion() != now.GetVersion() {
		t.Errorf("dry run: %q of version %d", dry.GetDiff(), dry.GetVersion())
	}
	done, err := c.SetPolicy(t.Context(), &greylagv1.SetPolicyRequest{RequestId: client.NewRequestID(), Toml: text, ExpectVersion: now.GetVersion()})
	if must(t, err); done.GetVersion() == now.GetVersion() {
		t.Errorf("applied: %v", done)
	}
	then, err := c.GetPolicy(t.Context(), &greylagv1.GetPolicyRequest{})
	if must(t, err); then.GetToml() != text || then.GetVersion() != done.GetVersion() {
		t.Errorf("version %d: %s", then.GetVersion(), then.GetToml())
	}
	for what, x := range map[string]struct {
		request *greylagv1.SetPolicyRequest
		want    string
	}{
		"stale":     {&greylagv1.SetPolicyRequest{Toml: text, ExpectVersion: now.GetVersion()}, "version"},
		"unknown":   {&greylagv1.SetPolicyRequest{Toml: "partitons = 1\n"}, "policy:1: partitons: unknown key"},
		"named":     {&greylagv1.SetPolicyRequest{Name: "mine.toml", Toml: "\ndefault_qos = \"gold\"\n"}, "mine.toml:2: default_qos: the default qos \"gold\" does not exist"},
		"empty":     {&greylagv1.SetPolicyRequest{Toml: " \n"}, "empty"},
		"mine":      {&greylagv1.SetPolicyRequest{Toml: strings.Replace(text, "admins = ['root']", "admins = ['olga']", 1)}, "removes root from admins"},
		"not text":  {&greylagv1.SetPolicyRequest{Toml: text + "# caf\xe9\n"}, "UTF-8"},
		"senseless": {&greylagv1.SetPolicyRequest{Toml: "[[partition]]\nname = \"a\"\n[[partition]]\nname = \"a\"\n"}, "a"},
	} {
		if _, err := c.SetPolicy(t.Context(), x.request); err == nil || !strings.Contains(err.Error(), x.want) || connect.CodeOf(err) == connect.CodeInternal {
			t.Errorf("%s: %v", what, err)
		}
	}
	if then, err = c.GetPolicy(t.Context(), &greylagv1.GetPolicyRequest{}); err != nil || then.GetVersion() != done.GetVersion() {
		t.Errorf("refused, and yet version %d, %v", then.GetVersion(), err)
	}
}

func TestSnapshotStreams(t *testing.T) {
	w := newWorld(t, options{})
	w.submit(w.as(ann), job("saved"))
	stream, err := w.as(root).Cluster().StreamSnapshot(t.Context(), &greylagv1.StreamSnapshotRequest{})
	must(t, err)
	var data bytes.Buffer
	for stream.Receive() {
		data.Write(stream.Msg().GetData())
	}
	if must(t, stream.Err()); !bytes.HasPrefix(data.Bytes(), []byte("GLBK")) || data.Len() < 100 {
		t.Errorf("%d bytes: %.20q", data.Len(), data.Bytes())
	}
}

func TestPeersFillEachOthersArchive(t *testing.T) {
	w := newWorld(t, options{})
	c := w.as(ann)
	id := w.submit(c, job("ended"))
	_, err := c.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{Filter: &greylagv1.Filter{Mine: true}})
	must(t, err)
	peers := client.NewPeers(pki.ClientTLS(w.ca.Trust(), w.identity(pki.RoleController, "c1")))
	defer peers.Close()
	records, next, err := peers.Finished(t.Context(), w.all[0].addr, 1, 10)
	if must(t, err); len(records) != 1 || next != 2 {
		t.Fatalf("%d records, next %d", len(records), next)
	}
	record, ok, err := w.all[0].store.Job(1)
	if must(t, err); !ok || !bytes.Equal(record.Data, records[0]) || uint64(record.ID) != id {
		t.Errorf("record %v", record)
	}
	if records, next, err = peers.Finished(t.Context(), w.all[0].addr, 2, 10); err != nil || len(records) != 0 || next != 2 {
		t.Errorf("beyond the end: %d records, next %d, %v", len(records), next, err)
	}
}

// TestLicences checks the listing of licences, with pending jobs that do not have theirs yet.
func TestLicences(t *testing.T) {
	w := newWorld(t, options{policy: func(p *cluster.Policy) {
		p.Scheduling.Licences = []cluster.Licence{{Name: "matlab", Count: 3}, {Name: "ansys", Count: 1}}
	}})
	n := newNode(w, "n1")
	asking := job("work")
	asking.Request = &greylagv1.Request{Licences: []*greylagv1.Licence{{Name: "matlab", Count: 2}}}
	w.submit(w.as(bob), asking)
	n.busy()
	asking.Hold = true
	x, err := w.as(bob).Cluster().ExplainJob(t.Context(), &greylagv1.ExplainJobRequest{Job: cluster.JobID(w.submit(w.as(bob), asking)).String()})
	must(t, err)
	if l, h := x.GetLicences(), x.GetHolders(); len(l) != 1 || l[0].GetName() != "matlab" || l[0].GetUsed() != 2 || len(h) != 1 || h[0].GetLicences()[0].GetCount() != 2 {
		t.Errorf("why: %v, held by %v", l, h)
	}
	for _, asked := range []bool{true, false} {
		info, err := w.as(bob).Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{Licences: asked})
		must(t, err)
		got := ""
		for _, l := range info.GetLicences() {
			got += fmt.Sprintf("%s %d %d %d;", l.GetName(), l.GetTotal(), l.GetUsed(), l.GetWanted())
		}
		if want := map[bool]string{true: "ansys 1 0 0;matlab 3 2 2;"}[asked]; got != want {
			t.Errorf("licences: %q, want %q", got, want)
		}
	}
}

// TestReservations checks the listing of reservations, and of their nodes.
func TestReservations(t *testing.T) {
	now := time.Now()
	w := newWorld(t, options{policy: func(p *cluster.Policy) {
		p.Scheduling.Reservations = []cluster.Reservation{
			{Name: "course", Nodes: []string{"n[1,7]"}, Users: []string{"bob"}, Start: cluster.InstantOf(now.Add(-time.Hour)), End: cluster.InstantOf(now.Add(5 * time.Hour))},
			{Name: "maint", Nodes: []string{"ALL"}, Start: cluster.InstantOf(now.Add(24 * time.Hour)), End: cluster.InstantOf(now.Add(25 * time.Hour))},
		}
	}})
	newNode(w, "n1")
	newNode(w, "n2")
	within := job("work")
	within.Reservation, within.Hold, within.TimeLimit = "course", true, durationpb.New(time.Hour)
	id := w.submit(w.as(bob), within)
	info, err := w.as(bob).Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{Reservations: true})
	must(t, err)
	if len(info.GetReservations()) != 2 {
		t.Fatal(info)
	}
	course, maint := info.GetReservations()[0], info.GetReservations()[1]
	if course.GetState() != greylagv1.ReservationState_RESERVATION_STATE_ACTIVE || course.GetMaintenance() || course.GetNodeList() != "n1" || course.GetGpus() != 2 || len(course.GetJobs()) != 1 ||
		course.GetJobs()[0].GetJob() != cluster.JobID(id).String() || course.GetJobs()[0].GetUser() != "bob" {
		t.Errorf("course: %v", course)
	}
	if maint.GetState() != greylagv1.ReservationState_RESERVATION_STATE_INACTIVE || !maint.GetMaintenance() || maint.GetNodeList() != "n[1-2]" || len(maint.GetJobs()) != 0 {
		t.Errorf("maint: %v", maint)
	}
	groups := map[string]string{}
	for _, g := range info.GetPartitions()[0].GetGroups() {
		groups[wire.Word(g.GetState())] = g.GetNodeList()
	}
	if len(groups) != 2 || groups["RESERVED"] != "n1" || groups["IDLE"] != "n2" {
		t.Errorf("groups: %v", groups)
	}
	nodes, err := w.as(bob).Cluster().ListNodes(t.Context(), &greylagv1.ListNodesRequest{})
	if must(t, err); len(nodes.GetNodes()[0].GetReservations()) != 1 || len(nodes.GetNodes()[1].GetReservations()) != 0 {
		t.Errorf("nodes: %v", nodes)
	}
}

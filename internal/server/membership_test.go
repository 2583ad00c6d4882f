package server_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
)

func (c *controllerHost) id() string { return c.log.Status().ID }

// add requests a membership once.
func (w *world) add(by *client.Client, c *controllerHost) error {
	_, err := by.Cluster().AddMember(w.t.Context(), &greylagv1.AddMemberRequest{Id: c.id(), Address: c.addr})
	return err
}

// remove removes a member as root.
func (w *world) remove(id string, at ...*controllerHost) error {
	_, err := w.as(root, at...).Cluster().RemoveMember(w.t.Context(), &greylagv1.RemoveMemberRequest{Id: id})
	return err
}

// names returns the host names of the members, as the leader lists them.
func (w *world) names() string {
	status, err := w.as(root, w.leader()).Cluster().GetStatus(w.t.Context(), &greylagv1.GetStatusRequest{})
	must(w.t, err)
	var names []string
	for _, m := range status.GetMembers() {
		names = append(names, m.GetName())
	}
	return strings.Join(names, " ")
}

func TestRemovedControllerIsRefused(t *testing.T) {
	w := newWorld(t, options{controllers: 3})
	if got := w.names(); got != "c1 c2 c3" {
		t.Fatalf("members %q", got)
	}
	gone := w.follower()
	name := strings.Fields(w.names())[indexOf(w, gone)]
	rest := others(w, gone)
	id := w.identity(pki.RoleController, name)
	must(t, w.remove(gone.id(), rest...))
	w.until("its end", func() bool { return errors.Is(gone.log.Err(), raftlog.ErrRemoved) })
	must(t, w.remove(gone.id(), rest...)) // a repetition is already done
	for _, at := range rest {
		says(t, "renew", pki.RenewNow(t.Context(), t.TempDir(), id, pki.RenewFrom([]string{at.addr}, w.ca.Trust(), id)), "certificate was revoked", at.addr)
	}
	stolen := pki.ClientTLS(w.ca.Trust(), w.identityIssued(pki.RoleController, name, time.Now().Add(time.Minute))) // newer than the revocation, as with a stolen CA key
	err := w.add(w.client(client.Config{TLS: stolen, Timeout: time.Minute}, rest), gone)
	var refusal *connect.Error
	if !errors.As(err, &refusal) || refusal.Meta().Get(client.CodeHeader) != client.CodeRemoved ||
		!strings.Contains(client.Hint(err), "gctl join TOKEN@CONTROLLER") {
		t.Errorf("it adds itself again: %v, hint %q", err, client.Hint(err))
	}
	if err := w.add(w.as(root, rest...), gone); err == nil {
		t.Error("an administrator adds the removed id")
	}
	peers := client.NewPeers(stolen)
	defer peers.Close()
	for _, at := range rest {
		if _, _, err := peers.Finished(t.Context(), at.addr, 1, 1); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a removed controller reads the archive: %v", err)
		}
		if _, err := peers.Rows(t.Context(), at.addr, 0, 1, 1); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a removed controller reads the journal: %v", err)
		}
	}
	if got := w.names(); strings.Contains(got, name) || len(strings.Fields(got)) != 2 {
		t.Errorf("members %q", got)
	}
	if err := w.remove("ctl-unknown", rest...); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an unknown id: %v", err)
	}
}

// TestRevokedControllerLearnsWhetherItWasRemoved checks that a controller whose certificate is
// revoked learns from any answer whether it was removed too.
func TestRevokedControllerLearnsWhetherItWasRemoved(t *testing.T) {
	w := newWorld(t, options{controllers: 3})
	gone := w.follower()
	removed, rest := strings.Fields(w.names())[indexOf(w, gone)], others(w, gone)
	ids := map[string]*pki.Identity{removed: w.identity(pki.RoleController, removed), "c9": w.identityIssued(pki.RoleController, "c9", time.Now().Add(-time.Minute))}
	must(t, pki.RenewNow(t.Context(), t.TempDir(), ids["c9"], pki.RenewFrom([]string{rest[0].addr}, w.ca.Trust(), ids["c9"])))
	w.revoke(w.as(root, rest...), pki.RoleController, "c9")
	must(t, w.remove(gone.id(), rest...))
	for name, want := range map[string]string{removed: client.CodeRemoved, "c9": client.CodeRevoked} {
		asker := w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), ids[name]), Timeout: time.Minute}, rest)
		for _, at := range rest {
			w.until(name+" is refused by "+at.addr, func() bool { // a follower applies it later
				_, err := asker.StatusOf(t.Context(), at.addr)
				refusal, is := errors.AsType[*connect.Error](err)
				return is && refusal.Meta().Get(client.CodeHeader) == want
			})
		}
	}
}

func indexOf(w *world, c *controllerHost) int {
	for i := range w.all {
		if w.all[i] == c {
			return i
		}
	}
	return -1
}

func others(w *world, c *controllerHost) (rest []*controllerHost) {
	for _, x := range w.all {
		if x != c {
			rest = append(rest, x)
		}
	}
	return rest
}

func TestControllerAddsOnlyItself(t *testing.T) {
	w := newWorld(t, options{})
	new := w.start(1, options{})
	if err := w.add(w.program(pki.RoleController, "c9", w.all[0]), new); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another controller adds it: %v", err)
	}
	must(t, w.add(w.program(pki.RoleController, "c2", w.all[0]), new))
	if got := w.names(); got != "c1 c2" {
		t.Errorf("members %q", got)
	}
	third := w.start(2, options{})
	_, err := w.as(root, w.all[0]).Cluster().AddMember(t.Context(), &greylagv1.AddMemberRequest{Id: third.id(), Address: new.addr})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "a different member answers at that address") {
		t.Errorf("under the address of another: %v", err)
	}
}

// TestControllerThatIsNoMemberServesNobody checks that a controller that has joined and is not a
// member answers only for its status.
func TestControllerThatIsNoMemberServesNobody(t *testing.T) {
	w := newWorld(t, options{})
	new := w.start(1, options{})
	hasty := client.Config{TLS: pki.ClientTLS(w.ca.Trust(), nil), Tokens: w.tokens(root), Timeout: time.Second}
	at := w.client(hasty, []*controllerHost{new})
	_, err := at.Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{Read: &greylagv1.Read{Stale: true}})
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "not a member") {
		t.Errorf("stale information: %v", err)
	}
	if status, err := at.Cluster().GetStatus(t.Context(), &greylagv1.GetStatusRequest{}); err != nil || status.GetId() != new.id() {
		t.Errorf("status: %v, %v", status, err)
	}
	both := w.client(hasty, []*controllerHost{new, w.all[0]})
	if _, err := both.Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{}); err != nil {
		t.Errorf("a client that knows a member as well: %v", err)
	}
}

// TestRemovalIsFinishedByTheNextCall: the leader fails after the state refused an ID and before the
// log continued without it.
func TestRemovalIsFinishedByTheNextCall(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	leader, gone := w.leader(), w.follower()
	if _, _, err := leader.loops.Propose(t.Context(), &command.RetireMember{Actor: command.Actor{Role: command.RoleAdmin}, ID: gone.id()}); err != nil {
		t.Fatal(err)
	}
	w.submit(w.as(ann), job("both still agree"))
	if err := w.remove(leader.id()); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the last controller that may stay is removed: %v", err)
	}
	must(t, w.remove(gone.id(), leader))
	w.until("its end", func() bool { return errors.Is(gone.log.Err(), raftlog.ErrRemoved) })
	if err := w.remove(leader.id(), leader); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the last controller is removed: %v", err)
	}
	w.submit(w.as(ann, leader), job("one goes on"))
}

// TestTheOnlyControllerKeepsItsPlace checks that the refusal says what to do instead.
func TestTheOnlyControllerKeepsItsPlace(t *testing.T) {
	w := newWorld(t, options{})
	asked := w.as(root).Cluster()
	_, err := asked.RemoveMember(t.Context(), &greylagv1.RemoveMemberRequest{Id: "ctl1"})
	says(t, "a host's name", err, "no such member", "in the column MEMBER")
	_, err = asked.TransferLeadership(t.Context(), &greylagv1.TransferLeadershipRequest{})
	says(t, "a transfer", err, "no other voting member", "gctl cluster token --controller")
}

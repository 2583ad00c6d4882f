package server_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/wire"
)

func (w *world) revoke(c *client.Client, role pki.Role, name string) {
	w.t.Helper()
	_, err := c.Cluster().RevokeCertificates(w.t.Context(), &greylagv1.RevokeCertificatesRequest{Role: wire.Enum[greylagv1.HostRole](string(role)), Name: name, Reason: "stolen", Force: true})
	must(w.t, err)
}

// token makes a join token; name "" allows any unused name.
func (w *world) token(role pki.Role, name string, replace bool) string {
	w.t.Helper()
	made, err := w.as(root).Cluster().CreateToken(w.t.Context(), &greylagv1.CreateTokenRequest{Role: wire.Enum[greylagv1.HostRole](string(role)), Name: name, Replace: replace})
	must(w.t, err)
	return made.GetToken()
}

// join exchanges a token for an identity.
func (w *world) join(token, name string) (*pki.Identity, error) {
	w.t.Helper()
	return w.joinIn(token, name, filepath.Join(w.t.TempDir(), "pki"))
}

// joinIn is join, and keeps the identity in a folder.
func (w *world) joinIn(token, name, dir string) (*pki.Identity, error) {
	w.t.Helper()
	parsed, err := pki.ParseToken(token)
	must(w.t, err)
	key, csr, err := pki.NewRequest(parsed.Role)
	must(w.t, err)
	c := w.client(client.Config{TLS: pki.PinnedTLS(parsed.CA)}, nil)
	answer, err := c.Cluster().Join(w.t.Context(), &greylagv1.JoinRequest{Token: token, Name: name, Csr: csr})
	if err != nil {
		return nil, err
	}
	must(w.t, pki.SaveIdentity(dir, w.ca.Trust(), key, answer.GetCertificate()))
	id, _, err := pki.OpenIdentity(dir)
	return id, err
}

// says fails the test unless err contains the words.
func says(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error()+" "+client.Hint(err), word) {
			t.Errorf("%s: %v (hint: %s), want %q in it", what, err, client.Hint(err), word)
		}
	}
}

func TestARevokedNodeIsRefusedOnOpenConnections(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	n.next()
	w.revoke(w.as(root), pki.RoleNode, "n1")
	_, err := n.session.Report(t.Context(), &greylagv1.ReportTasksRequest{Epoch: n.epoch})
	says(t, "report", err, "certificate was revoked", "by root: stolen", "gctl cluster token --node")
	select {
	case err := <-n.ended:
		says(t, "the open stream", err, "certificate was revoked")
	case <-time.After(time.Minute):
		t.Error("the stream of a revoked node stays open")
	}
	// The host joins again, and its daemon continues with the new certificate.
	_, err = w.joinIn(w.token(pki.RoleNode, "", false), "n1", w.pkiDir(pki.RoleNode, "n1"))
	must(t, err)
	w.until("the daemon shows its new certificate", func() bool {
		_, err = n.session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "boot", Cpus: 8, Memory: 32 << 30})
		return err == nil
	})
}

func TestARevokedCertificateIsNotRenewed(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	for _, role := range []pki.Role{pki.RoleNode, pki.RoleAuth, pki.RoleController} {
		id, err := w.join(w.token(role, "", false), "h1")
		must(t, err)
		w.revoke(w.as(root), role, "h1")
		for _, at := range w.all {
			err := pki.RenewNow(t.Context(), t.TempDir(), id, pki.RenewFrom([]string{at.addr}, w.ca.Trust(), id))
			says(t, "renew "+string(role), err, "certificate was revoked", at.addr)
		}
	}
}

func TestTokensOfARevokedLoginHostAreRefused(t *testing.T) {
	w := newWorld(t, options{})
	admin, user := w.as(root), w.as(ann)
	w.submit(user, job("before"))
	signer, err := auth.NewSigner(w.identity(pki.RoleAuth, "login2"))
	must(t, err)
	stolen := w.signer
	w.signer = signer
	w.revoke(w.as(root), pki.RoleAuth, "login1")
	for what, c := range map[string]*client.Client{"a user": user, "an administrator": admin} {
		_, err := c.Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{})
		says(t, what+" with a remembered token", err, "certificate was revoked", "auth login1")
	}
	w.signer = stolen
	_, err = w.as(ann).Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{})
	says(t, "a new token", err, "certificate was revoked")
	w.signer = signer
	w.submit(w.as(ann), job("after"))
}

func TestARemovedNodeJoinsWithANewToken(t *testing.T) {
	w := newWorld(t, options{})
	n := newNode(w, "n1")
	n.next()
	_, err := w.as(olga).Cluster().UpdateNodes(t.Context(), &greylagv1.UpdateNodesRequest{Names: []string{"n1"}, Action: greylagv1.NodeAction_NODE_ACTION_REMOVE})
	must(t, err)
	_, err = n.session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "boot", Cpus: 8, Memory: 32 << 30})
	says(t, "register", err, "the node was removed", "gctl cluster token --node")
	_, err = w.join(w.token(pki.RoleNode, "", false), "n1")
	must(t, err)
}

func TestAJoinTokenDoesNotGiveANameInUse(t *testing.T) {
	w := newWorld(t, options{})
	for _, role := range []pki.Role{pki.RoleNode, pki.RoleAuth, pki.RoleController} {
		first, err := w.join(w.token(role, "", false), "h1")
		must(t, err)
		_, err = w.join(w.token(role, "", false), "h1")
		says(t, "a name in use", err, "h1 is in use", "--"+string(role)+" --name h1 --replace")
		_, err = w.as(root).Cluster().CreateToken(t.Context(), &greylagv1.CreateTokenRequest{Role: wire.Enum[greylagv1.HostRole](string(role)), Name: "h1"})
		says(t, "a token for a name in use", err, "h1 is in use", "--replace")
		bound := w.token(role, "h1", true)
		_, err = w.join(bound, "h2")
		says(t, "another name than the token's", err, "is for "+string(role)+" h1, not h2")
		second, err := w.join(bound, "h1")
		must(t, err)
		says(t, "the host that was replaced", w.renew(first), "certificate was revoked", "replaced")
		must(t, w.renew(second))
	}
	for _, name := range []string{"ALL", "all", "None", "localhost"} {
		_, err := w.join(w.token(pki.RoleNode, "", false), name)
		says(t, name, err, "reserved word")
	}
	newNode(w, "n1") // registered; its certificate is recorded when it is first seen
	_, err := w.join(w.token(pki.RoleNode, "", false), "n1")
	says(t, "a living node", err, "n1 is in use")
}

func (w *world) renew(id *pki.Identity) error {
	return pki.RenewNow(w.t.Context(), w.t.TempDir(), id, pki.RenewFrom([]string{w.all[0].addr}, w.ca.Trust(), id))
}

// TestAJoinTokenIsForANameThatAHostCanHave checks that a token is refused for a name that no host
// could use.
func TestAJoinTokenIsForANameThatAHostCanHave(t *testing.T) {
	w := newWorld(t, options{})
	for _, name := range []string{"a b", "-x", "n1/..", strings.Repeat("n", 254)} {
		_, err := w.as(root).Cluster().CreateToken(t.Context(), &greylagv1.CreateTokenRequest{Role: greylagv1.HostRole_HOST_ROLE_NODE, Name: name})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "not a valid peer name") {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

func TestOneOfManyHostsWinsAJoinToken(t *testing.T) {
	w := newWorld(t, options{})
	token := w.token(pki.RoleNode, "", false)
	errs := make([]error, 8)
	var joining sync.WaitGroup
	for i := range errs {
		joining.Go(func() { _, errs[i] = w.join(token, []string{"n1", fmt.Sprintf("n%d", i)}[i%2]) })
	}
	joining.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		says(t, "one that was late", err, "the join token was used by", "gctl cluster token")
	}
	if won != 1 {
		t.Errorf("%d hosts joined with one token", won)
	}
}

func TestRevocationsThatAreRefused(t *testing.T) {
	w := newWorld(t, options{controllers: 3})
	ask := func(c *client.Client, role, name string, force bool) error {
		_, err := c.Cluster().RevokeCertificates(t.Context(), &greylagv1.RevokeCertificatesRequest{Role: wire.Enum[greylagv1.HostRole](role), Name: name, Reason: "x", Force: force})
		return err
	}
	_, err := w.join(w.token(pki.RoleNode, "", false), "n1")
	must(t, err)
	says(t, "an unknown node", ask(w.as(root), "node", "n9", false), "no certificate of node n9", "known: n1", "gctl cert list")
	says(t, "an unknown role", ask(w.as(root), "person", "n9", false), "role is not set")
	if err := ask(w.as(olga), "node", "n1", false); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("an operator: %v", err)
	}
	w.until("the controllers' certificates to be recorded", func() bool {
		for _, c := range w.all { // a follower asks the leader, and shows its certificate
			_, err := w.as(root, c).Cluster().GetInfo(t.Context(), &greylagv1.GetInfoRequest{})
			must(t, err)
		}
		list, err := w.as(root).Cluster().ListCertificates(t.Context(), &greylagv1.ListCertificatesRequest{})
		must(t, err)
		return len(list.GetHolders()) == 5 // three controllers, login1, n1
	})
	leader, followers := "", []string{}
	for i, c := range w.all {
		if name := fmt.Sprintf("c%d", i+1); c.log.IsLeader() {
			leader = name
		} else {
			followers = append(followers, name)
		}
	}
	says(t, "the leader", ask(w.as(root), "controller", leader, false), "leads the cluster", "gctl cluster transfer")
	must(t, ask(w.as(root), "controller", followers[0], false))
	says(t, "the second of three", ask(w.as(root), "controller", followers[1], false), "only 1 of 3 members could form a majority", "--force")
}

// TestMadeUpTokensLeaveNoTrace: any host can call Join, so an invalid token writes nothing to the
// log or the audit journal.
func TestMadeUpTokensLeaveNoTrace(t *testing.T) {
	w := newWorld(t, options{controllers: 2})
	token, _, err := pki.MintToken(w.ca.Trust(), pki.RoleNode, time.Now().Add(time.Hour))
	must(t, err)
	for range 3 {
		if _, err := w.join(token.String(), "n1"); connect.CodeOf(err) != connect.CodeNotFound || client.Hint(err) == "" {
			t.Errorf("a made-up token: %v", err)
		}
	}
	audit, err := w.as(root).Cluster().StreamAudit(t.Context(), &greylagv1.StreamAuditRequest{Kind: greylagv1.AuditKind_AUDIT_KIND_JOIN})
	must(t, err)
	for audit.Receive() {
		t.Errorf("the audit journal holds %v", audit.Msg())
	}
	must(t, audit.Err())
	_, err = w.join(w.token(pki.RoleNode, "", false), "n1")
	must(t, err)
}

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/test/cluster"
)

// rotation is the rotation of gctl cert list --json.
type rotation struct {
	Phase    string   `json:"phase"`
	NewCA    string   `json:"new_ca"`
	WaitsFor []string `json:"waits_for"`
}

// rotation returns the progress of the CA's rotation. It fails while a controller has not applied the start of
// the rotation yet and gauthd already has a certificate of the new CA.
func (s *site) rotation() (r rotation, err error) {
	s.t.Helper()
	result := s.run(tester, "gctl", "cert", "list", "--json")
	if result.Exit != 0 {
		return r, errors.New(result.Stderr)
	}
	var list struct {
		Rotation *rotation `json:"rotation"`
	}
	s.must(json.Unmarshal([]byte(result.Stdout), &list))
	if list.Rotation != nil {
		r = *list.Rotation
	}
	return r, nil
}

// awaitRotation waits until a rotation is in the phase and waits for no host.
func (s *site) awaitRotation(phase string) {
	s.t.Helper()
	s.until("the rotation of the CA is "+phase, func() (bool, error) {
		r, err := s.rotation()
		if err != nil {
			return false, err
		}
		return r.Phase == phase && len(r.WaitsFor) == 0, fmt.Errorf("%+v", r)
	})
}

// refusesRotation fails the test unless gctl cert rotate is refused with these words.
func (s *site) refusesRotation(words string, options ...string) {
	s.t.Helper()
	if result := s.run(tester, "gctl", append([]string{"cert", "rotate"}, options...)...); result.Exit == 0 || !strings.Contains(result.Stderr, words) {
		s.t.Errorf("gctl cert rotate %v: %+v, want %q", options, result, words)
	}
}

// askAgain restarts the daemons of nodes and the login host: they ask for the CAs at their start.
// With every fault, it leaves them to ask each minute.
func (s *site) askAgain() {
	s.t.Helper()
	if everyFault() {
		return
	}
	s.must(s.Auth().Kill())
	s.must(s.Auth().Start())
	for _, node := range s.Nodes() {
		s.must(node.Kill())
		s.must(node.Start())
	}
}

// TestTheCAIsRotatedWhileJobsRun replaces the CA under a running job, while the leader changes and a
// controller is away. Certificates of the old CA are refused afterwards, and hosts join with the new.
func TestTheCAIsRotatedWhileJobsRun(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 8*hang)
	options := three()
	options.Nodes = 2
	s := newSite(t, options)
	gate := s.gate("rotation")
	runs := s.gsubmit(tester, s.script(gate.then("exit 7")))
	s.await(ctx, runs, "RUNNING")
	copied := t.TempDir()
	s.must(os.CopyFS(copied, os.DirFS(s.Node(0).PKI())))
	s.must(os.Chmod(filepath.Join(copied, pki.IdentityFile), 0o600))
	old, before, err := pki.OpenIdentity(copied)
	s.must(err)
	token := strings.TrimSpace(s.ok(tester, "gctl", "cluster", "token", "--node"))
	s.refusesRotation("no CA rotation to finish", "--finish")
	away := s.others(s.leader(ctx))[0]
	s.must(away.Kill())
	s.ok(tester, "gctl", "cert", "rotate")
	s.refusesRotation("in progress since")
	s.refusesRotation("without a certificate of the new CA: auth/", "--finish")
	s.must(away.Start())
	s.must(s.leader(ctx).Kill())
	s.startAll()
	s.holdKeys(2)
	s.askAgain()
	s.awaitRotation("renewing")
	if text := s.run(tester, "gctl", "doctor").Stdout; !strings.Contains(text, "a rotation of the CA is under way (renewing)") {
		t.Errorf("gctl doctor: %s", text)
	}
	s.must(s.leader(ctx).Kill())
	s.refusesRotationWithoutController()
	s.startAll()
	s.until("the rotation is finished", func() (bool, error) {
		result := s.run(tester, "gctl", "cert", "rotate", "--finish")
		return result.Exit == 0, fmt.Errorf("%s", result.Stderr)
	})
	s.awaitRotation("done")
	s.oldCAIsGone(ctx, old, before)
	if result := s.run(tester, "gctl", "join", token, "--config", filepath.Join(copied, "none.toml"), "--name", "n9"); result.Exit == 0 || !strings.Contains(result.Stderr, "if the CA was rotated since") {
		t.Errorf("a token of the old CA: %+v", result)
	}
	if job := s.await(ctx, runs, "RUNNING"); job.Attempt != 1 {
		t.Errorf("the job is in attempt %d", job.Attempt)
	}
	gate.open()
	if job := s.ends(runs, "FAILED"); job.ExitCode != 7 || job.Attempt != 1 {
		t.Errorf("the job ended with %d in attempt %d", job.ExitCode, job.Attempt)
	}
	s.must(s.Rejoin(ctx, away, s.idOf(ctx, away)))
	s.idle(ctx)
	s.audit(ctx)
}

// startAll starts the controllers that were killed.
func (s *site) startAll() {
	s.t.Helper()
	for _, ctl := range s.Controllers() {
		if !ctl.Running() {
			s.must(ctl.Start())
		}
	}
}

// refusesRotationWithoutController checks that a rotation needs every controller's answer: a silent
// one may lack the new CA.
func (s *site) refusesRotationWithoutController() {
	s.t.Helper()
	s.leader(s.t.Context())
	s.refusesRotation("controllers without the new CA", "--finish")
}

// oldCAIsGone checks that a node's certificate of the old CA is refused, and that all hosts have left
// that CA.
func (s *site) oldCAIsGone(ctx context.Context, old *pki.Identity, before *pki.Trust) {
	s.t.Helper()
	s.until("a certificate of the old CA is refused", func() (bool, error) {
		_, now, err := pki.OpenIdentity(s.Node(0).PKI())
		s.must(err)
		_, err = pki.RenewFrom([]string{s.Controller(0).Addr}, now, old)(ctx, nil)
		return err != nil && strings.Contains(err.Error(), "unknown certificate authority"), err
	})
	s.askAgain()
	s.until("every host accepts only the new CA", func() (bool, error) {
		for _, node := range s.Nodes() {
			if now, err := pki.LoadTrust(filepath.Join(node.PKI(), pki.TrustFile)); err != nil || now.Holds(before.Fingerprint()) || len(now.DERs()) != 1 {
				return false, fmt.Errorf("%s accepts the old CA: %w", node.Name, err)
			}
		}
		return true, s.ReloadTrust()
	})
	s.holdKeys(1)
	for _, ctl := range s.Controllers() {
		_, err := ctl.Status(ctx)
		s.must(err)
		s.ok(tester, "gctl", "cluster", "status", "--controller", ctl.Addr)
	}
	client, err := s.Client()
	s.must(err)
	s.t.Cleanup(client.Close)
	s.client = client // the previous one accepts only the old CA
}

// holdKeys waits until every controller holds the private keys of n CAs.
func (s *site) holdKeys(n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("controllers hold %d keys", n), func() (bool, error) {
		for _, ctl := range s.Controllers() {
			keys, err := os.ReadFile(ctl.KeyFile())
			if held := strings.Count(string(keys), "BEGIN PRIVATE KEY"); err != nil || held != n {
				return false, fmt.Errorf("%s holds %d: %w", ctl.Name, held, err)
			}
		}
		return true, nil
	})
}

// idOf is the ID of a controller in the log.
func (s *site) idOf(ctx context.Context, ctl *cluster.Controller) string {
	s.t.Helper()
	status, err := ctl.Status(ctx)
	s.must(err)
	s.must(ctl.Stop())
	return status.Id
}

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/internal/wire"
)

const (
	// quiet is how long a member may not have answered the leader: ten heartbeats and more.
	quiet = 10 * time.Second
	// mostBehind is how many entries a member may lag before it is reported: some seconds under
	// full load.
	mostBehind = 50_000
	// callTime bounds one call of the API.
	callTime = 10 * time.Second
)

// commands checks what a user's commands need: the client's file, the CA, gauthd,
// and controllers that answer and agree.
func (x *exam) commands(ctx context.Context) {
	cfg, err := config.LoadClient("")
	standard := config.ClientPath
	named := os.Getenv(config.ClientEnv)
	if !x.configured(named, standard, "", err) {
		if _, err := os.Stat(cfg.CAFile); err != nil && cfg.JobSocket == "" {
			x.note(Fault, "configuration", "an administrator runs: gctl join TOKEN@CONTROLLER; or set "+config.ClientEnv+" to a client.toml", "this host belongs to no cluster: neither %s nor %s exists", standard, cfg.CAFile)
			return
		}
		x.good("configuration", "%s does not exist: using defaults", standard)
	}
	if err != nil {
		return
	}
	if cfg.JobSocket != "" {
		x.insideJob(ctx, cfg)
		return
	}
	trust, err := pki.LoadTrust(cfg.CAFile)
	if x.failed("authority", "an administrator runs: gctl join TOKEN@CONTROLLER, which writes it", err) {
		return
	}
	x.authority(trust)
	known := false
	switch _, err = auth.FetchToken(ctx, cfg.AuthSocket); {
	case err != nil && x.needsNoAuth():
		x.good("gauthd", "not set up here: commands work on login nodes, and inside jobs")
	case !x.failed("gauthd", "check its log: journalctl -u gauthd", err):
		known = true
		x.good("gauthd", "issues tokens for you on %s", cfg.AuthSocket)
	}
	if reached := x.controllers(ctx, cfg.Controllers, pki.ClientTLS(trust, nil)); !reached || !known {
		return
	}
	c := client.New(client.Config{Controllers: cfg.Controllers, TLS: pki.ClientTLS(trust, nil), Tokens: auth.NewSource(cfg.AuthSocket), Timeout: callTime})
	defer c.Close()
	if status := x.members(ctx, c, cfg.Controllers); status != nil {
		x.agreement(status)
		x.burst(ctx, c, status)
	}
}

// needsNoAuth reports whether this host is a compute node or a controller and no login node, so that
// gauthd is not expected here.
func (x *exam) needsNoAuth() bool {
	cfg, _ := config.LoadAuth(x.host.Auth) // a faulty file is one
	for _, path := range []string{cmp.Or(x.host.Auth, config.AuthPath), filepath.Join(cfg.PKIDir, pki.IdentityFile)} {
		if _, err := os.Stat(path); err == nil {
			return false
		}
	}
	for _, path := range []string{cmp.Or(x.host.Node, config.NodePath), cmp.Or(x.host.Controller, config.ControllerPath)} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// agreement checks that the controllers have a leader and that the others follow it.
func (x *exam) agreement(status *greylagv1.GetStatusResponse) {
	bad := len(x.findings)
	if status.Leader == "" {
		x.note(Fault, "cluster", "an election may be in progress, which takes some seconds; after that there is no quorum: check which controllers are running with gctl cluster status", "there is no leader")
	}
	if status.DiskLow {
		x.note(Warning, "cluster", "free space in its data_dir", "the disk of controller %s is almost full", status.Id)
	}
	if status.Version != version.Version {
		x.note(Warning, "version", "upgrade the older one; one version apart is fine for a while", "this host has %s, controller %s has %s", version.Version, status.Id, status.Version)
	}
	if problem, advice := HeldUp(status); problem != "" {
		x.note(Warning, "cluster", advice, "%s", problem)
	}
	if status.CaRotation != greylagv1.RotationPhase_ROTATION_PHASE_UNSPECIFIED {
		x.note(Warning, "cluster", "gctl cert list shows which hosts it waits for; then gctl cert rotate --finish", "a rotation of the CA is under way (%s)", wire.Word(status.CaRotation))
	}
	for _, m := range status.Members {
		switch {
		case m.Leader || status.Id != status.Leader: // only the leader knows
		case m.LastContact == nil || m.LastContact.AsDuration() > quiet:
			x.note(Warning, "cluster", "start gctld there, or gctl cluster remove "+m.Id+" if it is retired", "controller %s at %s does not answer the leader", hostText(m), m.Address)
		case m.MatchIndex+mostBehind < status.CommitIndex:
			x.note(Warning, "cluster", "it catches up automatically; if it does not, check its disk and the network", "controller %s is %d entries behind", hostText(m), status.CommitIndex-m.MatchIndex)
		}
	}
	if r := status.Restored; r != nil && (r.FirstJob > 0 || r.CreditsLeftOut > 0 || r.AuditLeftOut > 0) {
		bad++
		x.good("history", "restored %s from a backup without history; finished jobs begin at number %d", stamp(r.At), max(1, r.FirstJob))
	}
	if len(x.findings) == bad {
		x.good("cluster", "members: %d, %s leads", len(status.Members), status.Leader)
	}
}

// stamp formats an instant within a sentence.
func stamp(t *timestamppb.Timestamp) string { return t.AsTime().Local().Format(time.DateTime) }

// hostText returns the host name of a member, with its ID.
func hostText(m *greylagv1.Member) string {
	if m.Name == "" {
		return m.Id
	}
	return m.Name + " (" + m.Id + ")"
}

// HeldUp describes what an upgrade of the controllers waits for, as far as their leader knows, and
// how to continue; "" when all of them have completed it.
func HeldUp(s *greylagv1.GetStatusResponse) (problem, advice string) {
	if s.JournalForm >= s.NewestForm || s.Leader == "" || s.Id != s.Leader {
		return "", ""
	}
	problem = fmt.Sprintf("the credit journal is written in format %d until every controller supports format %d", s.JournalForm, s.NewestForm)
	var away []string
	for _, m := range s.Members {
		if !m.Leader && (m.LastContact == nil || m.LastContact.AsDuration() > quiet) {
			away = append(away, m.Id)
		}
	}
	if len(away) == 0 {
		return problem, "upgrade those that run an older version; the change follows some seconds after the last one"
	}
	who := strings.Join(away, ", ")
	return problem + "; cannot ask " + who, "start gctld of this version there; or, if it is retired, gctl cluster remove " + away[0]
}

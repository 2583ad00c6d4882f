package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/leased"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// leasing holds the options of gctl join --lease, and what its file says.
type leasing struct {
	file, instance string // file is "" without --lease
	identity       string // source of the identity document; "": none
	data           burst.UserData
}

// maxUserData bounds the user data, in bytes: that of EC2 has at most 16 KiB.
const maxUserData = 64 << 10

// readLease reads the user data of a launch.
func (j *joining) readLease() error {
	switch {
	case j.leased.instance == "":
		return &ui.UsageError{Problem: "--lease needs --instance", Advice: "pass the instance ID of this host, as the provider program lists it"}
	case j.name != "":
		return &ui.UsageError{Problem: "--lease cannot be combined with --name", Advice: "the name of a leased node is that of its lease"}
	}
	text, err := os.ReadFile(j.leased.file)
	if err != nil {
		return err
	}
	if err := j.parseUserData(text); err != nil {
		return hint.New(fmt.Errorf("%s is not the user data of a launch: %w", j.leased.file, err), "pass the user data of the instance unchanged")
	}
	return nil
}

// parseUserData reads and checks the user data. Unknown fields are those of a newer controller.
func (j *joining) parseUserData(text []byte) (err error) {
	d := &j.leased.data
	if len(text) > maxUserData {
		return fmt.Errorf("%d bytes, at most %d", len(text), maxUserData)
	}
	if err := json.Unmarshal(text, d); err != nil {
		return err
	}
	if err := pki.ValidClusterID(d.Cluster); err != nil {
		return err
	}
	const longest = 366 * 24 * 60 * 60
	switch {
	case d.Launch == 0:
		return fmt.Errorf("no launch")
	case d.LifetimeSeconds < 1 || d.LifetimeSeconds > longest:
		return fmt.Errorf("lifetime_seconds is %d, not between 1 and %d", d.LifetimeSeconds, longest)
	case len(d.Controllers) == 0:
		return fmt.Errorf("no controllers")
	}
	for _, address := range d.Controllers {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fmt.Errorf("controller %.80q is not HOST:PORT", address)
		}
	}
	if j.token, err = pki.ParseToken(d.Token); err != nil {
		return err
	}
	if j.token.Role != pki.RoleNode {
		return fmt.Errorf("the token is for a %s", roleText(j.token.Role))
	}
	j.address = d.Controllers[0]
	return nil
}

// controllers returns the controllers that are asked.
func (j joining) controllers() []string {
	if j.leased.file != "" {
		return j.leased.data.Controllers
	}
	return []string{j.address}
}

// patience is how long the controllers are asked; 0: the usual time. They may learn of a leased instance after its boot.
func (j joining) patience() time.Duration {
	if j.leased.file != "" {
		return time.Until(j.token.Expires)
	}
	return 0
}

// hasJoined returns the name of this node if it has joined with the same lease before; else "".
func (j joining) hasJoined(at place) string {
	if j.leased.file == "" {
		return ""
	}
	f, err := leased.ReadFile(at.leaseFile)
	if err != nil || f.Cluster != j.leased.data.Cluster || uint64(f.Launch) != j.leased.data.Launch || f.Instance != j.leased.instance {
		return ""
	}
	id, trust, err := pki.OpenIdentity(at.pkiDir)
	if err != nil || trust.ClusterID() != f.Cluster || id.Peer().Name != f.Lease.NodeName() {
		return ""
	}
	return id.Peer().Name
}

// powerOffUnit is the timer that powers a leased instance off at the end of its lifetime, also if it never joins.
const powerOffUnit = "greylag-lease-end"

// armPowerOff starts the timer, counted from the boot, unless it runs.
func (t commands) armPowerOff(ctx context.Context, seconds int64) {
	if !tool.SystemdRuns() || systemctl(ctx, nil, "is-active", powerOffUnit+".timer") == nil {
		return
	}
	timer := exec.CommandContext(ctx, "systemd-run", "--quiet", "--unit="+powerOffUnit, fmt.Sprintf("--on-boot=%d", seconds), "systemctl", "poweroff")
	if out, err := timer.CombinedOutput(); err != nil {
		t.Warn(fmt.Sprintf("this instance is not powered off at the end of its lease if it cannot join: systemd-run: %v: %s", err, bytes.TrimSpace(out)))
	}
}

// keepLease writes the lease file and returns the name of the node, which the certificate says.
func (j joining) keepLease(at place, trust *pki.Trust, answer *greylagv1.JoinResponse) (string, error) {
	d := &j.leased.data
	if trust.ClusterID() != d.Cluster {
		return "", fmt.Errorf("the controllers are of cluster %s, and %s is of cluster %s", trust.ClusterID(), j.leased.file, d.Cluster)
	}
	peer, _, err := trust.VerifyDER(answer.GetCertificate(), time.Now())
	if err != nil {
		return "", err
	}
	lease, ok := cluster.LeaseOf(peer.Name)
	if !ok {
		return "", fmt.Errorf("the controllers named this node %s, which is of no lease: upgrade them", peer.Name)
	}
	// The controllers count the lifetime from the launch.
	expires := time.Now().Add(time.Duration(d.LifetimeSeconds) * time.Second)
	if at := answer.GetExpires(); at != nil && at.AsTime().Before(expires) {
		expires = at.AsTime()
	}
	f := leased.File{
		Cluster: d.Cluster, Lease: lease, Launch: cluster.LeaseID(d.Launch), Instance: j.leased.instance,
		Expires: expires.UTC().Truncate(time.Second),
	}
	text, err := f.Text()
	if err == nil {
		err = config.WriteFile(at.leaseFile, text)
	}
	return peer.Name, err
}

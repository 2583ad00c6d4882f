package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/runtime/oci"
	"github.com/greylag/greylag/internal/scratch"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// login checks gauthd.
func (x *exam) login(ctx context.Context) {
	cfg, err := config.LoadAuth(x.host.Auth)
	if !x.configured(x.host.Auth, config.AuthPath, cfg.PKIDir, err) || err != nil {
		return
	}
	if !x.hasDaemon("gauthd", "greylag-client", "auth") {
		return
	}
	_, trust := x.identity(cfg.PKIDir, pki.RoleAuth)
	if _, err := auth.FetchToken(ctx, cfg.Socket); !x.failed("gauthd", "check its log: journalctl -u gauthd", err) {
		x.good("gauthd", "answers on %s", cfg.Socket)
	}
	if info, err := os.Stat(cfg.Socket); err == nil && info.Mode().Perm()&0o006 != 0o006 {
		x.note(Fault, "gauthd", "restart gauthd, which creates it, and do not change its mode", "%s has mode %04o: not every user can reach it", cfg.Socket, info.Mode().Perm())
	}
	if trust != nil {
		x.controllers(ctx, knownTo(cfg.PKIDir, cfg.Controllers), pki.ClientTLS(trust, nil))
	}
}

// controller checks gctld.
func (x *exam) controller(ctx context.Context) {
	cfg, err := config.LoadController(x.host.Controller)
	if !x.configured(x.host.Controller, config.ControllerPath, cfg.PKIDir, err) || err != nil {
		return
	}
	if !x.hasDaemon("gctld", "greylag-controller", "controller") {
		return
	}
	id, trust := x.identity(cfg.PKIDir, pki.RoleController)
	if id != nil {
		if _, err := pki.OpenCA(cfg.PKIDir); !x.failed("authority", "without it no host can join or renew here: copy ca-key.pem from another controller, mode 0600, or join this one again", err) {
			x.good("authority", "this controller can let hosts join")
		}
	}
	x.folder("data_dir", cfg.DataDir)
	if trust == nil {
		return
	}
	a := reach(ctx, []string{cfg.Advertise}, pki.ClientTLS(trust, nil))[0]
	if a.err != nil {
		x.note(Fault, "gctld", "start it: systemctl start gctld; if it exits, journalctl -u gctld says why; if it runs, check advertise", "nothing answers at %s: %s", cfg.Advertise, plain(a.err))
		return
	}
	x.good("gctld", "answers at %s", cfg.Advertise)
}

// node checks gnoded and all that tasks need.
func (x *exam) node(ctx context.Context) {
	cfg, err := config.LoadNode(x.host.Node)
	if !x.configured(x.host.Node, config.NodePath, cfg.PKIDir, err) || err != nil {
		return
	}
	if !x.hasDaemon("gnoded", "greylag-node", "node") {
		return
	}
	id, trust := x.identity(cfg.PKIDir, pki.RoleNode)
	x.folder("data_dir", cfg.DataDir)
	x.folder("state_dir", cfg.StateDir)
	x.scratch(cfg)
	x.tmpfs("state_dir", cfg.StateDir)
	if cfg.Runtime == "containerd" {
		x.containerd(ctx, cfg.Containerd.Socket)
		x.ociRuntime(cfg.Containerd.OCIRuntime)
		x.shim(cfg.Containerd.Shim)
		x.groups(cfg.Containerd.OCIRuntime == "crun")
	}
	for key, path := range map[string]string{"prolog": cfg.Prolog, "epilog": cfg.Epilog} {
		if path != "" {
			x.program(key, path)
		}
	}
	if len(cfg.SimulatedGPUs) == 0 {
		x.gpus(ctx)
	}
	known := knownTo(cfg.PKIDir, cfg.Controllers)
	if id == nil || !x.controllers(ctx, known, pki.ClientTLS(trust, id)) {
		return
	}
	c := client.New(client.Config{Controllers: known, TLS: pki.ClientTLS(trust, id), Timeout: callTime})
	defer c.Close()
	x.registered(ctx, c, id.Peer().Name)
}

// scratch checks the directory of the scratch space of jobs.
func (x *exam) scratch(cfg config.Node) {
	if cfg.ScratchDir == "" {
		return
	}
	space, err := scratch.Check(cfg.ScratchDir)
	total := cluster.Bytes(space.Total)
	switch {
	case x.failed("scratch_dir", scratchAdvice(err), err):
	case total <= cfg.ScratchReserve:
		x.note(Fault, "scratch_dir", "lower scratch_reserve, or use a larger file system", "scratch_reserve leaves no space for jobs: the file system of %s has only %s", cfg.ScratchDir, ui.SizeText(total))
	case !space.Limited:
		x.note(Warning, "scratch_dir", "use XFS, or ext4 with the feature project, and mount it with prjquota (docs/admin.md)",
			"%s offers %s, but jobs can exceed their --tmp: the file system does not enforce project quotas", cfg.ScratchDir, ui.SizeText(total-cfg.ScratchReserve))
	default:
		x.good("scratch_dir", "%s, %s for jobs, with project quotas", cfg.ScratchDir, ui.SizeText(total-cfg.ScratchReserve))
	}
}

// scratchAdvice returns what to do about an error of scratch.Check.
func scratchAdvice(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "create the directory, or change scratch_dir in gnoded.toml"
	}
	return "scratch_dir must be a directory, not a symbolic link, that belongs to root and has mode 0755"
}

// hasDaemon checks that the daemon of a part is installed.
func (x *exam) hasDaemon(name, packaged, role string) bool {
	_, err := tool.FindProgram(name)
	if err != nil {
		x.note(Fault, name, fmt.Sprintf("install the package %s; if this host should not be a %s, undo the join (docs/admin.md): gctl cert revoke %s/NAME, then remove the daemon's file and keys here", packaged, partText(x.part), role),
			"this host is set up as a %s, but %s is not installed", partText(x.part), name)
	}
	return err == nil
}

// knownTo returns the controllers that a daemon dials: those in its file and those it has learned.
func knownTo(pkiDir string, seeds []string) []string {
	known, err := client.OpenKnown(pkiDir, seeds)
	if err != nil { // this user may not read it
		return seeds
	}
	return known.Addresses()
}

// ociRuntime checks the OCI runtime, chosen in the same way as by gnoded.
func (x *exam) ociRuntime(name string) {
	if name == "auto" {
		name = ""
	}
	groups, err := cgroup.Detect()
	if err != nil {
		return // noted by groups
	}
	path, _, err := oci.Find(name, groups.Mixed())
	if !x.failed("oci_runtime", "install runc or crun, or set containerd.oci_runtime to an installed one", err) {
		x.chosen = filepath.Base(path)
		x.good("oci_runtime", "%s", path)
	}
}

// inUse checks that the node runs tasks with the OCI runtime that gnoded would choose now.
func (x *exam) inUse(n *greylagv1.Node) {
	used, is := strings.CutPrefix(n.Runtime, "containerd ")
	if is && x.chosen != "" && used != x.chosen {
		x.note(Warning, "oci_runtime", "systemctl restart gnoded; if this does not help, the PATH of the service finds another program than yours",
			"node %s runs tasks with %s, but gnoded would now choose %s", n.Name, used, x.chosen)
	}
}

// program checks that a program is installed.
func (x *exam) program(check, name string) {
	if path, ok := x.runs(check, name, "install it, or set "+check+" to what is installed"); ok {
		x.good(check, "%s", path)
	}
}

// runs finds a program, and notes if no user could run it.
func (x *exam) runs(check, name, advice string) (path string, ok bool) {
	path, err := exec.LookPath(name)
	if err != nil {
		x.note(Fault, check, advice, "%s cannot be run: %s", name, errors.Unwrap(err))
	}
	return path, err == nil
}

// shim checks the shim that containerd runs for each task; whose names it.
func (x *exam) shim(whose string) {
	if whose == "containerd" {
		if path, ok := x.runs("shim", "containerd-shim-runc-v2", "install it with containerd, or set containerd.shim to gshim"); ok {
			x.good("shim", "containerd's own, %s", path)
		}
		return
	}
	program := cmp.Or(x.host.Shim, installed("gshim"))
	for _, name := range []string{program, filepath.Join(filepath.Dir(program), "gshimd")} {
		if _, ok := x.runs("shim", name, "install gshim and gshimd in the directory of gnoded, or set containerd.shim to containerd"); !ok {
			return
		}
	}
	x.good("shim", "Greylag's, %s", program)
}

// registered checks the cluster's record of this node.
func (x *exam) registered(ctx context.Context, c *client.Client, name string) {
	answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: []string{name}})
	if x.failed("gnoded", "start it: systemctl start gnoded; its log says why it does not register", err) {
		return
	}
	if len(answer.Nodes) == 0 {
		x.note(Fault, "gnoded", "start it: systemctl start gnoded", "the cluster has no node %s", name)
		return
	}
	x.inUse(answer.Nodes[0])
	switch n := answer.Nodes[0]; {
	case n.State == greylagv1.NodeState_NODE_STATE_UNKNOWN || n.State == greylagv1.NodeState_NODE_STATE_DOWN:
		x.note(Fault, "gnoded", "start it: systemctl start gnoded; its log says why it does not report", "the controllers report node %s as %s", name, wire.Word(n.State))
	case n.Fault != "":
		x.note(Fault, "gnoded", "fix it; gnoded notices automatically", "node %s reports a fault: %s", name, n.Fault)
	case n.Drain:
		x.note(Warning, "gnoded", "gctl resume "+name+" when it is ready for work", "node %s was drained by %s: %s", name, n.ReasonBy, n.Reason)
	default:
		x.good("gnoded", "node %s is %s, %d CPUs, %d GPUs, runs tasks with %s", name, wire.Word(n.State), n.Cpus, len(n.Gpus), cmp.Or(n.Runtime, "an unknown runtime"))
	}
}

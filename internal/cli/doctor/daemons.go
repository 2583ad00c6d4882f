package doctor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
)

// login checks gauthd.
func (x *exam) login(ctx context.Context) {
	cfg, err := config.LoadAuth(x.host.Auth)
	if !x.configured(x.host.Auth, config.AuthPath, cfg.PKIDir, err) || err != nil {
		return
	}
	_, trust := x.identity(cfg.PKIDir, pki.RoleAuth)
	if _, err := auth.FetchToken(ctx, cfg.Socket); !x.failed("gauthd", "see why in its log: journalctl -u gauthd", err) {
		x.good("gauthd", "answers on %s", cfg.Socket)
	}
	if info, err := os.Stat(cfg.Socket); err == nil && info.Mode().Perm()&0o006 != 0o006 {
		x.note(Fault, "gauthd", "restart gauthd, which opens it, and leave its mode alone", "%s has mode %04o: not every user can reach it", cfg.Socket, info.Mode().Perm())
	}
	if trust != nil {
		x.controllers(ctx, cfg.Controllers, pki.ClientTLS(trust, nil))
	}
}

// controller checks gctld.
func (x *exam) controller(ctx context.Context) {
	cfg, err := config.LoadController(x.host.Controller)
	if !x.configured(x.host.Controller, config.ControllerPath, cfg.PKIDir, err) || err != nil {
		return
	}
	id, trust := x.identity(cfg.PKIDir, pki.RoleController)
	if id != nil {
		if _, err := pki.LoadCA(cfg.PKIDir); !x.failed("authority", "without it no host can join or renew here: copy ca-key.pem from another controller, mode 0600, or join this one anew", err) {
			x.good("authority", "this controller can let hosts join")
		}
	}
	x.folder("data_dir", cfg.DataDir)
	if trust == nil {
		return
	}
	a := reach(ctx, []string{cfg.Advertise}, pki.ClientTLS(trust, nil))[0]
	if a.err != nil {
		x.note(Fault, "gctld", "start it: systemctl start gctld; if it runs, advertise does not lead to it", "nothing answers at %s: %s", cfg.Advertise, plain(a.err))
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
	id, trust := x.identity(cfg.PKIDir, pki.RoleNode)
	x.folder("data_dir", cfg.DataDir)
	x.folder("state_dir", cfg.StateDir)
	if cfg.Runtime == "containerd" {
		x.containerd(ctx, cfg.Containerd.Socket)
		program := cfg.Containerd.OCIRuntime
		if program == "auto" { // crun only where it is installed and works
			program = "runc"
			if _, err := exec.LookPath("crun"); err == nil {
				program = "crun"
			}
		}
		x.program("oci_runtime", program)
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
	if id == nil || !x.controllers(ctx, cfg.Controllers, pki.ClientTLS(trust, id)) {
		return
	}
	c := client.New(client.Config{Controllers: cfg.Controllers, TLS: pki.ClientTLS(trust, id), Timeout: callTime})
	defer c.Close()
	x.registered(ctx, c, id.Peer().Name)
}

// program checks that a program is installed.
func (x *exam) program(check, name string) {
	if path, ok := x.runs(check, name, "install it, or set "+check+" to what is installed"); ok {
		x.good(check, "%s", path)
	}
}

// runs finds a program, and notes where nobody could run it.
func (x *exam) runs(check, name, advice string) (path string, ok bool) {
	path, err := exec.LookPath(name)
	if err != nil {
		x.note(Fault, check, advice, "%s cannot be run: %s", name, errors.Unwrap(err))
	}
	return path, err == nil
}

// shim checks what containerd runs beside each task; whose says which one that is.
func (x *exam) shim(whose string) {
	if whose == "containerd" {
		if path, ok := x.runs("shim", "containerd-shim-runc-v2", "install it with containerd, or set containerd.shim to gshim"); ok {
			x.good("shim", "containerd's own, %s", path)
		}
		return
	}
	program := cmp.Or(x.host.Shim, beside("gshim"))
	for _, name := range []string{program, filepath.Join(filepath.Dir(program), "gshimd")} {
		if _, ok := x.runs("shim", name, "install gshim and gshimd beside gnoded, or set containerd.shim to containerd"); !ok {
			return
		}
	}
	x.good("shim", "Greylag's, %s", program)
}

// registered checks what the cluster holds of this node.
func (x *exam) registered(ctx context.Context, c *client.Client, name string) {
	answer, err := c.Cluster().Nodes(ctx, &greylagv1.NodesRequest{Names: []string{name}})
	if x.failed("gnoded", "start it: systemctl start gnoded; its log says why it does not register", err) {
		return
	}
	if len(answer.Nodes) == 0 {
		x.note(Fault, "gnoded", "start it: systemctl start gnoded", "the cluster has no node %s", name)
		return
	}
	switch n := answer.Nodes[0]; {
	case n.State == "UNKNOWN" || n.State == "DOWN":
		x.note(Fault, "gnoded", "start it: systemctl start gnoded; its log says why it is not heard", "the controllers call node %s %s", name, n.State)
	case n.Fault != "":
		x.note(Fault, "gnoded", "mend that; gnoded takes it up by itself", "node %s tells of a fault: %s", name, n.Fault)
	case n.Drain:
		x.note(Warning, "gnoded", "gctl resume "+name+" when that is over", "node %s was drained by %s: %s", name, n.ReasonBy, n.Reason)
	default:
		x.good("gnoded", "node %s is %s, %d CPUs, %d GPUs", name, n.State, n.Cpus, len(n.Gpus))
	}
}

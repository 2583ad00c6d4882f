package config

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Registries configure the access of a node to images.
type Registries struct {
	AuthFile string `toml:"auth_file"` // logins for all jobs, readable by root alone; "": only users' own
	HostsDir string `toml:"hosts_dir"` // hosts.toml files; "": none
}

// Images limit the images that a node keeps.
type Images struct {
	Keep time.Duration `toml:"keep"` // since the last use; 0: permanently
	Size cluster.Bytes `toml:"size"` // of all, downloaded and unpacked; 0: no limit
}

func defaultRegistries() Registries { return Registries{HostsDir: "/etc/containerd/certs.d"} }

func defaultImages() Images { return Images{Keep: 14 * 24 * time.Hour, Size: 200 * cluster.GiB} }

func (r *Registries) check(c *checker) {
	if r.AuthFile != "" {
		c.Absolute("registries.auth_file", r.AuthFile)
	}
	if r.HostsDir != "" {
		c.Absolute("registries.hosts_dir", r.HostsDir)
	}
}

func (i *Images) check(c *checker) {
	if i.Keep != 0 {
		c.AtLeast("images.keep", i.Keep, time.Hour)
	}
	if i.Size != 0 && (i.Size < 64*cluster.MiB || i.Size > 1024*cluster.TiB) {
		c.Fault("images.size", "%v is out of range, 64M to 1024T, or 0 for no limit", i.Size)
	}
}

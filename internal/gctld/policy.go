package gctld

import (
	"os"
	"os/user"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// firstPolicy is what a new cluster starts with. Whoever runs the controllers
// without being root is an administrator too: as the owner of their files they
// could do anything, and nobody else could let the first node in.
func firstPolicy(trust *pki.Trust) cluster.Policy {
	policy := cluster.DefaultPolicy()
	policy.Cluster = pki.ClusterName(trust.ClusterID())
	if os.Geteuid() != 0 {
		if self, err := user.Current(); err == nil {
			policy.Admins = append(policy.Admins, self.Username)
		}
	}
	return policy
}

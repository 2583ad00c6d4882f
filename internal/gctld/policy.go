package gctld

import (
	"os"
	"os/user"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// firstPolicy is the policy of a new cluster. The user who runs the controllers is an administrator
// too: as the owner of their files this user could do anything, and otherwise no user could let the
// first node in.
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

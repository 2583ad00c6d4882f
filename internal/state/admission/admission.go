// Package admission decides whether a job could ever run: it applies the policy's defaults, checks
// accounts, QOS, limits and reservations, and compares the request with the registered nodes as
// if all of them were free. It changes nothing but the specification that it checks.
package admission

import (
	"iter"

	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Checker is what jobs are checked against.
type Checker struct {
	Now      cluster.Instant
	Policy   *cluster.Policy
	Accounts *accounts.Accounts
	Nodes    *cow.Map[string, *cluster.Node]
	Fabric   *topology.Fabric
	Index    *Index // of Policy and Nodes
	// Localities caches the locality of whole partitions. It must be cleared when Index or Fabric
	// changes.
	Localities map[string]*Locality
	// Offers yields those of the cloud. Without any, no job is refused that requests leased nodes.
	Offers iter.Seq[*cluster.Offer]
}

package cluster

import "github.com/greylag/greylag/internal/hostlist"

// AllNodes is the word that stands for every node of the site in a node list.
const AllNodes = "ALL"

// NodeNames is a set of node names, or of all nodes of the site, or of all leased nodes. The zero value is empty.
type NodeNames struct {
	All    bool                // nodes of the site; no leased ones
	Leased bool                // all leased nodes
	Listed map[string]struct{} // registered or not
}

// ParseNodeNames expands hostlist expressions, [AllNodes] and [LeasedNodes]. A malformed expression is taken as
// one name: it was refused when it was written. O(names).
func ParseNodeNames(expressions []string) NodeNames {
	var s NodeNames
	for _, e := range expressions {
		switch e {
		case AllNodes:
			s.All = true
			continue
		case LeasedNodes:
			s.Leased = true
			continue
		}
		list, err := hostlist.Expand(e)
		if err != nil {
			list = []string{e}
		}
		if s.Listed == nil {
			s.Listed = make(map[string]struct{}, len(list))
		}
		for _, name := range list {
			s.Listed[name] = struct{}{}
		}
	}
	return s
}

// Has reports whether a node is in the set.
func (s *NodeNames) Has(node string) bool {
	if s.All || s.Leased {
		if leased := IsLeased(node); s.All && !leased || s.Leased && leased {
			return true
		}
	}
	_, listed := s.Listed[node]
	return listed
}

// Disjoint reports whether both sets are non-empty and have no node in common.
func (s *NodeNames) Disjoint(o *NodeNames) bool {
	if s.All || o.All || s.Leased || o.Leased || len(s.Listed) == 0 || len(o.Listed) == 0 {
		return false
	}
	for name := range s.Listed {
		if _, both := o.Listed[name]; both {
			return false
		}
	}
	return true
}

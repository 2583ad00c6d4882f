package cluster

import "github.com/greylag/greylag/internal/hostlist"

// AllNodes is the word of a node list that stands for every node.
const AllNodes = "ALL"

// NodeNames is a set of node names, or of all nodes. The zero value is empty.
type NodeNames struct {
	All    bool
	Listed map[string]struct{} // registered or not
}

// ParseNodeNames expands host list expressions and [AllNodes]. An expression that is not a host
// list stands for itself: faulty ones were refused when they were written. O(names).
func ParseNodeNames(expressions []string) NodeNames {
	var s NodeNames
	for _, e := range expressions {
		if e == AllNodes {
			s.All = true
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
	if s.All {
		return true
	}
	_, listed := s.Listed[node]
	return listed
}

// Disjoint reports whether both sets name nodes, but none in common.
func (s *NodeNames) Disjoint(o *NodeNames) bool {
	if s.All || o.All || len(s.Listed) == 0 || len(o.Listed) == 0 {
		return false
	}
	for name := range s.Listed {
		if _, both := o.Listed[name]; both {
			return false
		}
	}
	return true
}

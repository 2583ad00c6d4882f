package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The features of a request are conditions, which all must hold:
//
//	a          a node has the feature
//	a|(b&c)    a node has one of several sets of features
//	[a|(b&c)]  all nodes of the job have the same one of several sets
//
// At most one is of the third form.

// maxFeatureSets is the number of alternatives that a condition may have.
const maxFeatureSets = 16

// condition is one condition on the features of nodes.
type condition struct {
	sets [][]string // a node needs all features of one set
	same bool       // all nodes of the job use the same set
}

// ParseFeatures reads features joined by & or a comma (all of them) and | (one of them), from left to
// right, with parentheses; brackets around alternatives say that all nodes have the same one.
func ParseFeatures(text string) ([]string, error) {
	p := featureParser{text: text}
	list, err := p.expression()
	if err == nil && p.at < len(text) {
		err = fmt.Errorf("%q is unexpected in %q", text[p.at:], text)
	}
	if err != nil {
		return nil, err
	}
	words := make([]string, len(list))
	for i := range list {
		words[i] = list[i].String()
	}
	return words, checkSame(words)
}

// checkSame refuses a second condition in brackets.
func checkSame(conditions []string) error {
	first := slices.IndexFunc(conditions, inBrackets)
	if first >= 0 && slices.ContainsFunc(conditions[first+1:], inBrackets) {
		return errors.New("only one part of the features can be in brackets")
	}
	return nil
}

func inBrackets(condition string) bool { return strings.HasPrefix(condition, "[") }

// FormatFeatures writes features in the form that ParseFeatures reads.
func FormatFeatures(conditions []string) string {
	if len(conditions) < 2 {
		return strings.Join(conditions, "")
	}
	words := slices.Clone(conditions)
	for i, c := range words {
		if strings.Contains(c, "|") && !inBrackets(c) {
			words[i] = "(" + c + ")"
		}
	}
	return strings.Join(words, "&")
}

// HasFeatures reports whether a node with these features meets a condition. Any set of a condition in
// brackets is enough. O(condition × features).
func HasFeatures(features []string, condition string) bool {
	if !strings.ContainsAny(condition, "|[") {
		return slices.Contains(features, condition)
	}
	for _, set := range alternatives(condition) {
		if !slices.ContainsFunc(set, func(f string) bool { return !slices.Contains(features, f) }) {
			return true
		}
	}
	return false
}

// alternatives returns the sets of a condition with several.
func alternatives(condition string) (sets [][]string) {
	for set := range strings.SplitSeq(strings.Trim(condition, "[]"), "|") {
		sets = append(sets, strings.Split(strings.Trim(set, "()"), "&"))
	}
	return sets
}

// FeatureSets returns the conditions for each set of a condition in brackets: all nodes of a job meet those
// of one set. It returns the conditions alone if none is in brackets.
func FeatureSets(conditions []string) [][]string {
	at := slices.IndexFunc(conditions, inBrackets)
	if at < 0 {
		return [][]string{conditions}
	}
	var all [][]string
	for _, set := range alternatives(conditions[at]) {
		all = append(all, slices.Concat(conditions[:at], set, conditions[at+1:]))
	}
	return all
}

func (c *condition) String() string {
	words := make([]string, len(c.sets))
	for i, set := range c.sets {
		if words[i] = strings.Join(set, "&"); len(set) > 1 && len(c.sets) > 1 {
			words[i] = "(" + words[i] + ")"
		}
	}
	text := strings.Join(words, "|")
	if c.same {
		return "[" + text + "]"
	}
	return text
}

// featureParser reads an expression of features.
type featureParser struct {
	text string
	at   int
}

// expression reads terms up to the end, or up to a closing parenthesis or bracket.
func (p *featureParser) expression() ([]condition, error) {
	all, err := p.term()
	for err == nil && p.at < len(p.text) && strings.IndexByte("&,|", p.text[p.at]) >= 0 {
		by := p.text[p.at]
		p.at++
		var next []condition
		if next, err = p.term(); err != nil {
			break
		}
		if by != '|' {
			all = append(all, next...)
			continue
		}
		var left, right [][]string
		if left, err = product(all); err == nil {
			right, err = product(next)
		}
		all = []condition{{sets: append(left, right...)}}
	}
	if err == nil && len(all[0].sets) > maxFeatureSets {
		err = fmt.Errorf("%q has more than %d alternatives", p.text, maxFeatureSets)
	}
	return all, err
}

// term reads a feature, or an expression in parentheses or brackets.
func (p *featureParser) term() ([]condition, error) {
	rest := p.text[p.at:]
	closing := map[bool]byte{strings.HasPrefix(rest, "("): ')', strings.HasPrefix(rest, "["): ']'}[true]
	if closing == 0 {
		n := strings.IndexAny(rest, "&,|()[]*")
		if n < 0 {
			n = len(rest)
		}
		if n == 0 || !isFeature(rest[:n]) {
			return nil, fmt.Errorf("not a list of features: %q", p.text)
		}
		p.at += n
		return []condition{{sets: [][]string{{rest[:n]}}}}, p.rejectCount()
	}
	p.at++
	list, err := p.expression()
	switch {
	case err != nil:
		return nil, err
	case p.at == len(p.text) || p.text[p.at] != closing:
		return nil, fmt.Errorf("%q is missing in %q", closing, p.text)
	}
	if p.at++; closing == ']' {
		sets, err := product(list)
		if err != nil {
			return nil, err
		}
		if len(sets) > 1 {
			list = []condition{{sets: sets, same: true}}
		}
	}
	return list, p.rejectCount()
}

// rejectCount refuses a number of nodes after a feature.
func (p *featureParser) rejectCount() error {
	if strings.HasPrefix(p.text[p.at:], "*") {
		return ErrFeatureCount
	}
	return nil
}

// ErrFeatureCount is the error for a number of nodes that must have a feature.
var ErrFeatureCount = errors.New("a number of nodes with a feature, such as a*2, is not supported")

// product returns the sets that meet all conditions.
func product(list []condition) ([][]string, error) {
	all := [][]string{nil}
	for _, c := range list {
		if c.same {
			return nil, errors.New("brackets can be joined to other features by & only")
		}
		var next [][]string
		for _, set := range all {
			for _, more := range c.sets {
				next = append(next, slices.Concat(set, more))
			}
		}
		if all = next; len(all) > maxFeatureSets {
			return nil, fmt.Errorf("the features have more than %d alternatives", maxFeatureSets)
		}
	}
	return all, nil
}

// isFeature reports whether text consists of letters, digits, dots, dashes and underscores.
func isFeature(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	})
}

// checkFeatures checks that each condition with an operator has the form that ParseFeatures returns.
func (r *Request) checkFeatures(fault func(string, ...any)) {
	for _, c := range r.Features {
		if !strings.ContainsAny(c, "&|()[]*") {
			continue
		}
		if list, err := ParseFeatures(c); err != nil {
			fault("features: %v", err)
		} else if len(list) != 1 || list[0] != c {
			fault("features: %q is not written as one condition", c)
		}
	}
	if err := checkSame(r.Features); err != nil {
		fault("features: %v", err)
	}
}

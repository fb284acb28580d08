package jobmanager

// Understood tells whether this member, as the leader, may propose a command of a level.
func (s *Server) Understood(level uint32) error { return (*replicatedLog)(s).understood(level) }

"""Where storage time goes: counters → flows → bursts → stalls → verdict. Pure: no clock, no I/O.

Only `numbers` is imported by the policy; numpy loads with the rest.
"""

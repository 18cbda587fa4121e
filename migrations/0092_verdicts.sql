-- What an operator knows of a leg that the rail does not say: taken in place of the rail's answer.
alter table effect add column verdict jsonb;
